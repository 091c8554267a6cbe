"""Run one command line under both launchers, each in a directory of its own, and see what came.

Nothing is compared here, and nothing made alike but what is random by its nature: the directories
of this run are written as they are named in a line, {dir}, {tmp} and {out}.
"""

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.dropin.line import Line
from tests.support.launching import ROOT, clean_environ
from tests.support.processes import until

HERE = Path(__file__).parent
PROBE = HERE / "probe.py"
PATIENCE_S = 200.0
TORCHRUN, SPAWNLAUNCH = "torchrun", "spawnlaunch"
# Where a line is typed: what its streams are, or that it is a shell of a Slurm job.
FILES, PIPE, TERMINAL, SHELL = "files", "pipe", "terminal", "shell of a job"
SGR = re.compile(rb"\x1b\[[0-9;]*m")


class Seen(NamedTuple):
    """What came of a line."""

    status: int
    stdout: str
    stderr: str
    workers: dict[str, Any]  # by "RESTART.RANK", what the probe reported
    files: dict[str, str]  # that were left, by name: their text; NAME/ is an empty directory
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
    module = {
        "torchrun": "spawnlaunch",
        "launch": "spawnlaunch.distributed_launch",
        "call": "tests.torch_suite.agent",
    }
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
            preexec_fn=_have_terminal,
        )
    return Started(process.pid, process.poll)


def _have_terminal() -> None:
    """Make stdin the terminal of this session, if it is one."""
    if os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def see(
    line: Line,
    launcher: str,
    warm: Warm | None,
    top: Path,
    ports: dict[str, str],
    around: str = FILES,
) -> Seen:
    """Run a line under one of the launchers, below the directory `top`, in these surroundings."""
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
    if around == SHELL:  # of this process's own job
        environ |= {name: os.environ[name] for name in os.environ if name.startswith("SLURM")}
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
    with streams(around, order):
        code = _run(line, launcher, warm, order, out)
    return _read(code, top, out, names)


def _run(line: Line, launcher: str, warm: Warm | None, order: dict[str, Any], out: Path) -> int:
    """Run it, with the signals of the line; the result is its exit code."""
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
    code: int = run.poll()
    return code


@contextmanager
def streams(around: str, order: dict[str, Any]) -> Iterator[None]:
    """The streams of the surroundings in place of files; what comes out of them is in files then.

    A terminal shows both streams as one, here as the second.
    """
    if around not in (PIPE, TERMINAL):
        yield
        return
    places = {name: Path(order[name]) for name in ("stdout", "stderr")}
    if around == PIPE:
        for name, place in places.items():
            order[name] = str(place.with_suffix(".fifo"))
            os.mkfifo(order[name])
        ends = [(os.open(order[name], os.O_RDWR), place) for name, place in places.items()]
        inlets = [os.open(order[name], os.O_RDONLY | os.O_NONBLOCK) for name in places]
        for inlet in inlets:
            os.set_blocking(inlet, True)
        outlets = [outlet for outlet, _ in ends]
    else:
        inlet, outlet = os.openpty()
        order |= dict.fromkeys(("stdin", *places), os.ttyname(outlet))
        inlets, outlets = [inlet], [outlet]
        places["stdout"].touch()
    kept = [*places.values()][-len(inlets) :]
    readers = [
        threading.Thread(target=_keep, args=pair, daemon=True)
        for pair in zip(inlets, kept, strict=True)
    ]
    for reader in readers:
        reader.start()
    try:
        yield
    finally:
        for outlet in outlets:
            os.close(outlet)
        for reader, inlet in zip(readers, inlets, strict=True):
            reader.join(PATIENCE_S)
            os.close(inlet)


def _keep(inlet: int, place: Path) -> None:
    """What comes through, to its end, with the line ends and without the colours of a terminal."""
    found = b""
    with suppress(OSError):  # EIO is the end of a terminal (pty(7))
        while data := os.read(inlet, 1 << 16):
            found += data
    place.write_bytes(SGR.sub(b"", found.replace(b"\r\n", b"\n")))


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
            name = str(file.relative_to(top))
            if file.is_file():
                files[name] = file.read_text(errors="replace")
            elif place == "logs" and not any(file.iterdir()):
                files[f"{name}/"] = ""
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
