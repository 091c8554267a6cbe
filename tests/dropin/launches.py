"""Run one command line under both launchers, each in a directory of its own, and see what came.

Nothing is compared here, and nothing made alike but what is random by its nature: the directories
of this run are written as they are named in a line, {dir}, {tmp} and {out}.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

from tests.dropin.line import Line
from tests.support.launching import ROOT, clean_environ
from tests.support.processes import until

HERE = Path(__file__).parent
PROBE = HERE / "probe.py"
PATIENCE_S = 200.0
TORCHRUN, SPAWNLAUNCH = "torchrun", "spawnlaunch"


class Seen(NamedTuple):
    """What came of a line."""

    status: int
    stdout: str
    stderr: str
    workers: dict[str, Any]  # by "RESTART.RANK", what the probe reported
    files: dict[str, str]  # that were left in the directories, by name: their text
    error: Any  # what stands in the file that TORCHELASTIC_ERROR_FILE named


class Warm:
    """torchrun, imported once."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.dropin.warm"],
            cwd=ROOT,
            env=clean_environ(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lock = threading.Condition()
        self._next = 0
        self._pids: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        assert self._process.stdout
        assert json.loads(self._process.stdout.readline()) == ["ready"]
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            number, pid, *status = json.loads(line)
            with self._lock:
                self._pids[number] = pid
                if status:
                    self._ends[number] = os.waitstatus_to_exitcode(status[0])
                self._lock.notify_all()

    def start(self, order: dict[str, Any]) -> "Started":
        with self._lock:
            number, self._next = self._next, self._next + 1
            assert self._process.stdin
            self._process.stdin.write(json.dumps({**order, "number": number}) + "\n")
            self._process.stdin.flush()
            assert self._lock.wait_for(lambda: number in self._pids, PATIENCE_S)
            return Started(self._pids[number], lambda: self._ends.get(number))

    def end(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)


class Started(NamedTuple):
    pid: int
    poll: Any  # () -> its exit code, or None


def started_here(order: dict[str, Any]) -> Started:
    """spawnlaunch, in a process as any other."""
    module = {"torchrun": "spawnlaunch", "launch": "spawnlaunch.distributed_launch"}
    with (
        open(order["stdin"], "rb") as stdin,
        open(order["stdout"], "ab") as stdout,
        open(order["stderr"], "ab") as stderr,
    ):
        process = subprocess.Popen(
            [sys.executable, "-m", module[order["program"]], *order["words"]],
            cwd=order["cwd"],
            env=order["environ"],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
    return Started(process.pid, process.poll)


def see(line: Line, launcher: str, warm: Warm | None, top: Path, ports: dict[str, str]) -> Seen:
    """Run a line under one of the launchers, below the directory `top`."""
    out, tmp, cwd, logs = (top / name for name in ("out", "tmp", "cwd", "logs"))
    for each in (out, tmp, cwd):
        each.mkdir(parents=True)
    shutil.copy(PROBE, cwd / "train.py")
    (cwd / "pkg").mkdir()
    shutil.copy(PROBE, cwd / "pkg" / "worker.py")
    names = {"dir": str(cwd), "logs": str(logs), "tmp": str(tmp), "python": sys.executable, **ports}
    environ = clean_environ(TMPDIR=str(tmp), PROBE_OUT=str(out), PROBE_DO=line.do)
    for name in ("PYTHONUNBUFFERED", "PYTEST_CURRENT_TEST", "_"):  # of whoever runs the tests
        environ.pop(name, None)
    environ |= {name: _filled(value, names) for name, value in line.environ.items()}
    (top / "stdin").write_text(PROBE.read_text() if line.reads_script else "")
    order = {
        "program": line.program,
        "words": [_filled(word, names) for word in line.words],
        "environ": environ,
        "cwd": str(cwd),
        "stdin": str(top / "stdin"),
        "stdout": str(top / "stdout"),
        "stderr": str(top / "stderr"),
    }
    run = warm.start(order) if launcher == TORCHRUN and warm else started_here(order)
    try:
        if line.signals:
            until(lambda: run.poll() is not None or len(list(out.glob("*.json"))) >= line.workers,
                  f"workers of {line} have started", PATIENCE_S)  # fmt: skip
            for name in line.signals:
                os.kill(run.pid, getattr(signal, name))
        until(lambda: run.poll() is not None, f"{launcher} {line} has ended", PATIENCE_S)
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
    return _read(run.poll(), top, out, names)


def _read(code: int, top: Path, out: Path, names: dict[str, str]) -> Seen:
    streams = [(top / name).read_text(errors="replace") for name in ("stdout", "stderr")]
    workers = {}
    for file in sorted(out.glob("*.json")):
        report = json.loads(_plain(file.read_text(), top, names))
        notes = file.with_suffix(".signals")
        report["signals"] = notes.read_text().split() if notes.exists() else []
        report["left"] = sorted(each.suffix for each in out.glob(f"{file.stem}.*")
                                if each.suffix not in (".json", ".signals"))  # fmt: skip
        workers[file.stem] = report
    files = {}
    for place in ("logs", "tmp"):
        for file in sorted((top / place).rglob("*")):
            if file.is_file():
                files[str(file.relative_to(top))] = file.read_text(errors="replace")
    error = top / "cwd" / "error.json"
    return Seen(
        code,
        *(_plain(text, top, names) for text in streams),
        workers,
        files,
        json.loads(error.read_text()) if error.exists() else None,
    )


def _filled(text: str, names: dict[str, str]) -> str:
    """The text of a line with this run's directories and ports in it; ${local_rank} stays."""
    for name, value in names.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def _plain(text: str, top: Path, names: dict[str, str]) -> str:
    """The text with this run's directories under the names that they have in lines."""
    for name in ("dir", "logs", "tmp"):
        text = text.replace(names[name], f"{{{name}}}")
    return text.replace(str(top), "{top}")
