"""Run one line under both launchers, each in a directory of its own, and record what came of it.

Nothing is compared here, and nothing made alike but what is random by its nature: the directories
of a run are written as they are named in a line, {dir}, {logs} and {tmp}.
"""

import fcntl
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.launching import GLOO, ROOT, clean_environ
from tests.support.patience import PATIENCE_S
from tests.support.ports import alone, free_port
from tests.support.processes import until
from tests.torchrun import warm
from tests.torchrun.lines import PIPE, PROBE, SCRIPTS, TERMINAL, TORCHRUN, Line

DEFAULT_PORT = 29400  # of c10d under torchrun
SGR = re.compile(rb"\x1b\[[0-9;]*m")
OURS = {TORCHRUN: "spawnlaunch", "torch.distributed.launch": "spawnlaunch.distributed_launch"}
# What tests set for themselves, or leave to the libraries of a program.
UNSET = (
    "PYTHONUNBUFFERED",
    "PYTHONDONTWRITEBYTECODE",
    "PYTEST_CURRENT_TEST",
    "_",
    "COLUMNS",
    "LINES",
)
QUIET = {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
# gloo fails now and then under any launcher, where a rank ends while others still connect to it.
FLAKES = re.compile(f"{GLOO}|Gloo connectFullMesh failed|Did the remote server shutdown or crash")
TRIES = 4


class Seen(NamedTuple):
    """What came of a line under one of the launchers."""

    statuses: list[int]  # of the launchers
    stdout: str
    stderr: str
    workers: dict[str, Any]  # by "RESTART.RANK", what the probe reported
    files: dict[str, str]  # that were left, by name: their text; NAME/ is an empty directory
    error: Any  # what stands in the file that TORCHELASTIC_ERROR_FILE named


class Both(NamedTuple):
    """A line, and what came of it under torchrun and under spawnlaunch."""

    line: Line
    theirs: Seen
    ours: Seen


class Started(NamedTuple):
    """A launcher."""

    pid: int
    poll: Callable[[], int | None]  # its exit code


def run_both(line: Line, top: Path) -> Both:
    """Run it under both."""
    names_no_port = "c10d" in line.text and not re.search(r"endpoint[ =]\S*:", line.text)
    with socket.socket() as busy, alone(DEFAULT_PORT) if names_no_port else nullcontext():
        busy.bind(("", 0))
        busy.listen()
        names = {"port": str(free_port()), "busy": str(busy.getsockname()[1])}
        found = [
            run_steadily(line, start, top / start.__name__, names)
            for start in (start_torchrun, start_spawnlaunch)
        ]
    return Both(line, *found)


def run_steadily(line: Line, start: Any, top: Path, *more: dict[str, str]) -> Seen:
    """Run it, again where gloo has failed."""
    for number in range(TRIES):
        seen = run(line, start, top / str(number), *more)
        if not FLAKES.search(seen.stderr):
            break
    return seen


def start_torchrun(order: warm.Order) -> Started:
    process = warm.FORKS.Process(target=warm.become, args=(order,))
    process.start()
    return Started(process.pid, lambda: process.exitcode)


def start_spawnlaunch(order: warm.Order) -> Started:
    streams = warm.open_streams(order)
    process = subprocess.Popen(
        [sys.executable, "-m", OURS[order.module], *order.words],
        cwd=order.cwd,
        env=order.environ,
        stdin=streams[0],
        stdout=streams[1],
        stderr=streams[2],
        start_new_session=True,
        preexec_fn=lambda: warm.settle(order),
    )
    for each in streams:
        os.close(each)
    return Started(process.pid, process.poll)


def run(
    line: Line, start: Callable[[warm.Order], Started], top: Path, ports: dict[str, str]
) -> Seen:
    """Run a line under one of the launchers, below the directory `top`."""
    out, tmp, cwd, logs = (top / name for name in ("out", "tmp", "cwd", "logs"))
    for each in (out, tmp, cwd / "pkg"):
        each.mkdir(parents=True)
    for copy in (cwd / "train.py", cwd / "pkg" / "worker.py"):
        shutil.copy(PROBE, copy)
    names = {"dir": cwd, "logs": logs, "tmp": tmp, "python": sys.executable, "scripts": SCRIPTS}
    names |= {"root": ROOT, **ports}
    environ = clean_environ(TMPDIR=str(tmp), PROBE_OUT=str(out), PROBE_DO=line.do)
    environ |= QUIET if line.is_program else {}
    environ = {name: environ[name] for name in environ if name not in UNSET}
    environ |= {name: _filled(value, names) for name, value in line.environ.items()}
    with _streams(line.on, top, str(line.stdin)) as streams:
        launchers = [
            start(
                warm.Order(
                    line.program,
                    [_filled(word, {**names, "node": node}) for word in line.words],
                    environ,
                    str(cwd),
                    streams,
                    line.hindrance,
                )
            )
            for node in range(line.launchers)
        ]
        statuses = _ended(line, launchers, out)
    return _read(statuses, top, names)


def _ended(line: Line, launchers: list[Started], out: Path) -> list[int]:
    """Send the signals of the line when all workers run, and wait; the result is the exit codes."""

    def have_ended() -> bool:
        return None not in [launcher.poll() for launcher in launchers]

    try:
        if line.signals:
            has_begun = lambda: have_ended() or len(list(out.glob("*.json"))) == 2  # noqa: E731
            until(has_begun, f"two workers of {line} have started", PATIENCE_S)
            for name in line.signals:
                os.kill(launchers[0].pid, getattr(signal, name))
        until(have_ended, f"{line} has ended", PATIENCE_S)
    finally:
        for launcher in launchers:
            if launcher.poll() is None:
                os.killpg(launcher.pid, signal.SIGKILL)
    return [code for launcher in launchers if (code := launcher.poll()) is not None]


@contextmanager
def _streams(kind: str, top: Path, stdin: str) -> Iterator[tuple[str, str, str]]:
    """The names of the three streams; what is written to them is in files of `top` at the end.

    A pipe and a terminal have both streams as one, here as stderr.
    """
    kept = (top / "stdout", top / "stderr")
    for each in kept:
        each.touch()
    if kind not in (PIPE, TERMINAL):
        yield (stdin, *map(str, kept))
        return
    inlet, outlet = os.openpty() if kind == TERMINAL else os.pipe()
    if kind == TERMINAL:
        fcntl.ioctl(outlet, termios.TIOCSWINSZ, struct.pack("4H", 20, 90, 0, 0))
    name = f"/proc/{os.getpid()}/fd/{outlet}"
    reader = threading.Thread(target=_keep, args=(inlet, kept[1]), daemon=True)
    reader.start()
    try:
        yield (name if kind == TERMINAL else stdin, name, name)
    finally:
        os.close(outlet)
        reader.join(PATIENCE_S)
        os.close(inlet)


def _keep(inlet: int, place: Path) -> None:
    """What comes through, to its end, with the line ends and without the colours of a terminal."""
    found = b""
    with suppress(OSError):  # EIO is the end of a terminal (pty(7))
        while data := os.read(inlet, 1 << 16):
            found += data
    place.write_bytes(SGR.sub(b"", found.replace(b"\r\n", b"\n")))


def _read(statuses: list[int], top: Path, names: dict[str, Any]) -> Seen:
    def plain(text: str) -> str:
        for name in ("dir", "logs", "tmp"):
            text = text.replace(str(names[name]), f"{{{name}}}")
        return text.replace(str(top), "{top}")

    out, tmp, cwd, logs = (top / name for name in ("out", "tmp", "cwd", "logs"))
    workers, files = {}, {}
    for file in sorted(out.glob("*.json")):
        notes = file.with_suffix(".signals")
        workers[file.stem] = json.loads(plain(file.read_text())) | {
            "signals": notes.read_text().split() if notes.exists() else [],
            "left": sorted(each.suffix for each in out.glob(f"{file.stem}.*")
                           if each.suffix not in (".json", ".signals")),
        }  # fmt: skip
    error = cwd / "error.json"
    for file in sorted(each for place in (logs, tmp, cwd) for each in place.rglob("*")):
        name = str(file.relative_to(top))
        if file.is_file() and file != error and not name.endswith((".py", ".pyc")):
            files[name] = plain(file.read_text(errors="replace"))
        elif name.startswith("logs") and file.is_dir() and not any(file.iterdir()):
            files[f"{name}/"] = ""
    return Seen(
        statuses,
        *(plain((top / name).read_text(errors="replace")) for name in ("stdout", "stderr")),
        workers,
        files,
        json.loads(error.read_text()) if error.exists() else None,
    )


def _filled(text: str, names: dict[str, Any]) -> str:
    """The text of a line with this run's directories and ports in it; ${local_rank} stays."""
    for name, value in names.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text
