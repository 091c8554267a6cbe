"""What watching costs: --record beside the training loop, and spawnlaunch.top of 64 ranks.

    python -m benchmarks.watching [--rounds 25] [--seconds 2] [--write]

The loop trains under --record. In every round its recorder runs for some seconds, and is stopped
for as many, in another order each time; what the loop did in both is compared within the round.
(The guard tells the recorder of events only, and there are none meanwhile.) Then top draws 64 idle
ranks of 21 threads, twice a second, on a terminal: the processor time that the kernel says it used.
"""

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import processes, report
from benchmarks.report import Goal, Section, cell

ROUNDS = 25
RANKS = 2
TRAINED_STEPS = 100  # before the first round
OF_PLAIN = 0.99  # of the loop's speed, with a recorder
LARGEST_GUARD_MIB = 16.0
WATCHED, EVERY_S, WATCHED_S, OF_A_CORE = 64, 0.5, 20.0, 0.1
SCREEN = (80, 120)  # lines and columns
IDLE = """
import threading, time
for _ in range(20):
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
print("ready", flush=True)
time.sleep(3600)
"""
TICKS = os.sysconf("SC_CLK_TCK")


def measure(options: Namespace) -> Section:
    """Both, one after the other."""
    with tempfile.TemporaryDirectory() as scratch:
        running, stopped, recorder_share, guard_mib = recording(
            Path(scratch), options.rounds, options.seconds
        )
    top_share = watching()
    found = report.share(running, stopped)
    return Section(
        "watching",
        "Watching",
        f"""{RANKS} ranks of the training loop under --record, {len(running)} rounds of
        {options.seconds:g} s with its recorder running and as many with it stopped; the share of a
        core that the recorder used while it ran, and the peak of the guard's memory. And top,
        drawing {WATCHED} ranks of 21 threads every {EVERY_S} s for {WATCHED_S:g} s on a terminal of
        {SCREEN[0]} lines.""",
        ["", "steps per second", "share of a core", "memory of the guard"],
        [
            ["--record, its recorder stopped", cell(stopped), "", ""],
            ["--record", cell(running), cell([recorder_share]), cell([guard_mib], " MiB")],
            [f"top of {WATCHED} ranks", "", cell([top_share]), ""],
        ],
        [
            Goal(
                "Speed with a recorder, of that without", found.ratio, OF_PLAIN,
                at_least=True, interval=(found.low, found.high),
            ),
            Goal("Guard with --record, MiB", guard_mib, LARGEST_GUARD_MIB),
            Goal(f"Share of a core of top with {WATCHED} ranks", top_share, OF_A_CORE),
        ],
    )  # fmt: skip


def recording(
    scratch: Path, rounds: int, seconds: float
) -> tuple[list[float], list[float], float, float]:
    """Steps per second in each round, recorder running and stopped; what it used; guard's MiB."""
    words = (
        f"--task language --layers 1 --width 32 --context 32 --steps 1000000 --out {scratch}/out"
    )
    words += " --log-every 1 --eval-every 0 --save-every 0 --batch-size 2 --device cpu"
    launcher = [sys.executable, "-m", "spawnlaunch", "--nproc", str(RANKS), "--quiet"]
    command = [*launcher, "--record", f"{scratch}/record", "--", *words.split()]
    process = processes.start(command, {})
    assert process.stdout
    threading.Thread(target=_read_all, args=(process.stdout.fileno(),), daemon=True).start()
    metrics = Metrics(scratch / "out" / "metrics.jsonl")
    speeds: dict[bool, list[float]] = {True: [], False: []}
    used_s = ran_s = 0.0
    try:
        while metrics.steps() < TRAINED_STEPS:
            if process.poll() is not None:
                raise RuntimeError(f"{command} ended with {process.returncode}")
            time.sleep(0.1)
        recorder, guard = _recorder_and_guard(process.pid)
        for number in range(rounds):
            for runs in (True, False) if number % 2 else (False, True):
                os.kill(recorder, signal.SIGCONT if runs else signal.SIGSTOP)
                before, used = time.monotonic(), cpu_seconds(recorder)
                speeds[runs].append(metrics.speed(seconds))
                if runs:
                    used_s += cpu_seconds(recorder) - used
                    ran_s += time.monotonic() - before
        os.kill(recorder, signal.SIGCONT)
        peak = Path(f"/proc/{guard}/status").read_text().partition("VmHWM:")[2].split()[0]
    finally:
        processes.finish(process)
    return speeds[True], speeds[False], used_s / ran_s, int(peak) / 1024


def _read_all(fd: int) -> None:
    while os.read(fd, 1 << 16):
        pass


class Metrics:
    """The file that the loop writes a line to at each step."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def steps(self) -> int:
        """How far the loop is."""
        return self._last()[0] if self._path.exists() else 0

    def _last(self) -> tuple[int, float]:
        """The last step, and when the loop had made it, in seconds of its own clock."""
        with self._path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
            lines = [line for line in file.read().split(b"\n")[:-1] if line.startswith(b"{")]
        if not lines:
            return 0, 0.0
        told = json.loads(lines[-1])
        return int(told["step"]), float(told["seconds"])

    def speed(self, seconds: float) -> float:
        """Steps per second from now on."""
        (first, began) = self._last()
        time.sleep(seconds)
        (last, ended) = self._last()
        return (last - first) / (ended - began)


def _recorder_and_guard(launcher: int) -> tuple[int, int]:
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    names = {Path(f"/proc/{pid}/comm").read_text().strip(): int(pid) for pid in children}
    guard = names.pop("spawnlaunch grd")
    (recorder,) = names.values()
    return recorder, guard


def cpu_seconds(pid: int) -> float:
    """Of a process so far: proc(5), stat, utime and stime."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@contextmanager
def idle_ranks() -> Iterator[None]:
    """Processes that top takes for the ranks of a launch."""
    started = []
    try:
        for rank in range(WATCHED):
            who = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(WATCHED)}
            started.append(
                subprocess.Popen(
                    [sys.executable, "-S", "-c", IDLE],
                    env={**os.environ, **who},
                    stdout=subprocess.PIPE,
                )
            )
        for one in started:
            assert one.stdout
            one.stdout.readline()
        yield
    finally:
        for one in started:
            one.kill()
            one.wait()


def watching() -> float:
    """The share of a core that top uses, once it has begun."""
    with idle_ranks():
        pid, terminal = pty.fork()
        if pid == 0:
            words = ["-m", "spawnlaunch.top", "--every", str(EVERY_S)]
            os.execv(sys.executable, [sys.executable, *words])
        try:
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", *SCREEN, 0, 0))
            drawn = bytearray()
            threading.Thread(target=_drain, args=(terminal, drawn), daemon=True).start()
            while b"q quit" not in drawn:
                time.sleep(0.1)
            time.sleep(2)
            before, began = cpu_seconds(pid), time.monotonic()
            time.sleep(WATCHED_S)
            return (cpu_seconds(pid) - before) / (time.monotonic() - began)
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _drain(terminal: int, drawn: bytearray) -> None:
    try:
        while True:
            drawn += os.read(terminal, 1 << 16)
    except OSError:
        return


def flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--seconds", type=float, default=2.0, metavar="S", help="of each half of a round; default 2"
    )


if __name__ == "__main__":
    report.main("watching", __doc__, measure, ROUNDS, flags)
