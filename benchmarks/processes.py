"""Start launchers of any kind, read the output of their workers, and end them."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
ENOUGH_S = 120.0
TICKS = os.sysconf("SC_CLK_TCK")
PREFIX = re.compile(r"^\[\d+\] ", flags=re.MULTILINE)  # spawnlaunch's, before each line


def start(command: Sequence[str], environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a launcher, with additions to the environment, in a session of its own."""
    return subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def children(pid: int) -> list[int]:
    """The child processes of a process's first thread."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def cpu_s(pid: int) -> float:
    """Seconds of CPU that a process has used: proc_pid_stat(5), utime and stime."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def lines(process: subprocess.Popen[bytes], count: int, word: str = "") -> list[str]:
    """Read the workers' lines, without prefixes, until so many of them contain the word."""
    assert process.stdout
    data = b""
    while sum(word.encode() in line for line in data.split(b"\n")[:-1]) < count:
        more = os.read(process.stdout.fileno(), 65536)
        if not more:
            raise RuntimeError(f"{process.args!r} ended after {data!r}")
        data += more
    return PREFIX.sub("", data.decode()).splitlines()


def seconds_to(command: Sequence[str], environ: Mapping[str, str], count: int, word: str) -> float:
    """The seconds from a launcher's start to the last of so many lines with the word."""
    began = time.monotonic()
    process = start(command, environ)
    try:
        lines(process, count, word)
        took_s = time.monotonic() - began
        process.wait(ENOUGH_S)
        return took_s
    finally:
        finish(process)


def finish(process: subprocess.Popen[bytes]) -> None:
    """End a launcher that still runs, with its session."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(ENOUGH_S)
    finally:
        if process.stdout:
            process.stdout.close()
