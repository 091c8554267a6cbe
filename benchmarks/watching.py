"""The cost of watching: --record beside the training loop, and spawnlaunch.top of 64 ranks.

    python -m benchmarks.watching [--rounds 10] [--seconds 30] [--windows 10] [--write]

The loop trains under --record, once its recorders of collectives are full, as they are in any job
after minutes. First the CPU time of watching is counted: of the recorder, and of all threads of
Python in the workers but the first, one of which answers the recorder. On a machine whose cores all
have a rank it is taken from the steps. Then the steps themselves are compared: in every round the
recorder runs for some seconds, and is stopped for as many, in an order that is drawn. (The guard
sends the recorder only events, and there are none meanwhile.) Last, top draws 64 idle ranks of 21
threads, twice a second, on a terminal, and its CPU time is read from the kernel.
"""

import fcntl
import json
import os
import pty
import random
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks import processes, report
from benchmarks.report import Goal, Section, cell

ROUNDS = 10
RANKS = 2
TRAINED_STEPS = 2500  # first: each is a collective, and torch keeps the last 2,000 of these
WINDOW_S = 30.0  # ranks are asked at least once in it, and in a half of a round
OF_A_STEP = 0.005  # at most, by the CPU time and by the speed
LARGEST_GUARD_MIB = 16.0
WATCHED, EVERY_S, WATCHED_S, OF_A_CORE = 64, 0.5, 5.0, 0.1
SCREEN = (80, 120)  # lines and columns
IDLE = """
import threading, time
for _ in range(20):
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
print("ready", flush=True)
time.sleep(3600)
"""


def measure(options: Namespace) -> Section:
    """Measure the recorder, then top."""
    with tempfile.TemporaryDirectory() as scratch:
        cost = recording(Path(scratch), options)
    top_shares = watching(options.windows)
    speed_ratio = report.share(cost.running, cost.stopped)
    return Section(
        "watching",
        "Watching",
        f"""{RANKS} ranks of the training loop under --record, each on one core:
        {len(cost.recorder)} times {WINDOW_S:g} s in which CPU time is counted, then
        {len(cost.running)} rounds of {options.seconds:g} s with its recorder running and as many
        with it stopped. The share of a core that the recorder used, and that the threads in the
        workers did which answer it, the slower worker's; what the recorder used once, until its
        launch had trained {TRAINED_STEPS} steps; and the peak of the guard's memory. And top,
        drawing {WATCHED} ranks of 21 threads every {EVERY_S} s on a terminal of {SCREEN[0]} lines,
        for {options.windows} times {WATCHED_S:g} s.""",
        ["", "steps per second", "share of a core", "at the start", "memory of the guard"],
        [
            ["--record, its recorder stopped", cell(cost.stopped), "", "", ""],
            [
                "--record: the recorder", cell(cost.running), cell(cost.recorder),
                cell([cost.begin_s], " s"), cell([cost.guard_mib], " MiB"),
            ],
            ["--record: a worker's answers", "", cell(cost.answers), "", ""],
            [f"top of {WATCHED} ranks", "", cell(top_shares), "", ""],
        ],
        [
            report.goal_of_difference(
                "CPU time of watching, as a share of all ranks' steps",
                [r / RANKS + a for r, a in zip(cost.recorder, cost.answers, strict=True)],
                [0.0] * len(cost.recorder), OF_A_STEP,
            ),
            Goal(
                "Speed with a recorder, of that without", speed_ratio.ratio, 1 - OF_A_STEP,
                at_least=True, interval=(speed_ratio.low, speed_ratio.high),
            ),
            Goal("Guard with --record, MiB", cost.guard_mib, LARGEST_GUARD_MIB),
            report.goal_of_value(
                f"Share of a core of top with {WATCHED} ranks", top_shares, OF_A_CORE
            ),
        ],
    )  # fmt: skip


class Cost(NamedTuple):
    """The cost of --record."""

    recorder: Sequence[float]  # share of a core, in each window
    answers: Sequence[float]  # the same of a worker, that which used the most
    begin_s: float  # CPU time of the recorder until the first window
    guard_mib: float
    running: Sequence[float]  # steps per second in each round, with a recorder
    stopped: Sequence[float]


def recording(scratch: Path, options: Namespace) -> Cost:
    """Measure the cost of --record for a launch of the loop."""
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
    drawn = random.Random(0)
    try:
        while metrics.steps() < TRAINED_STEPS:
            if process.poll() is not None:
                raise RuntimeError(f"{command} ended with {process.returncode}")
            time.sleep(0.1)
        recorder, guard, workers = _parts(process.pid)
        begin_s = processes.cpu_s(recorder)
        shares = [_shares(recorder, workers) for _ in range(options.windows)]
        for _ in range(options.rounds):
            for runs in drawn.sample((True, False), 2):
                os.kill(recorder, signal.SIGCONT if runs else signal.SIGSTOP)
                speeds[runs].append(metrics.speed(options.seconds))
        os.kill(recorder, signal.SIGCONT)
        peak = Path(f"/proc/{guard}/status").read_text().partition("VmHWM:")[2].split()[0]
    finally:
        processes.finish(process)
    cores, answers = zip(*shares, strict=True)
    return Cost(cores, answers, begin_s, int(peak) / 1024, speeds[True], speeds[False])


def _shares(recorder: int, workers: Sequence[int]) -> tuple[float, float]:
    """The shares of a core that the recorder uses in a window, and the busiest worker's answers."""
    used, *answers = _used(lambda: [_ran_ns(recorder), *map(_beside_ns, workers)], WINDOW_S)
    return used, max(answers)


def _used(ran_ns: Callable[[], list[int]], seconds: float) -> list[float]:
    """The share of a core used over some seconds, for each count of nanoseconds."""
    began, before = time.monotonic(), ran_ns()
    time.sleep(seconds)
    after, passed_ns = ran_ns(), (time.monotonic() - began) * 1e9
    return [(b - a) / passed_ns for a, b in zip(before, after, strict=True)]


def _ran_ns(pid: int) -> int:
    """Nanoseconds that a process has run: Documentation/scheduler/sched-stats.rst."""
    return sum(map(_thread_ns, Path(f"/proc/{pid}/task").iterdir()))


def _beside_ns(pid: int) -> int:
    """Nanoseconds that a process's threads have run, without the first and those with names."""
    first = Path(f"/proc/{pid}/task/{pid}")
    name = (first / "comm").read_text()
    beside = [t for t in first.parent.iterdir() if (t / "comm").read_text() == name]
    return sum(map(_thread_ns, beside)) - _thread_ns(first)


def _thread_ns(task: Path) -> int:
    return int((task / "schedstat").read_text().split()[0])


def _read_all(fd: int) -> None:
    while os.read(fd, 1 << 16):
        pass


class Metrics:
    """The file that the loop writes a line to at each step."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def steps(self) -> int:
        """The number of steps that the loop has made."""
        return self._last()[0] if self._path.exists() else 0

    def _last(self) -> tuple[int, float]:
        """The last step, and its time in seconds of the loop's own clock."""
        with self._path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
            lines = [line for line in file.read().split(b"\n")[:-1] if line.startswith(b"{")]
        if not lines:
            return 0, 0.0
        line = json.loads(lines[-1])
        return int(line["step"]), float(line["seconds"])

    def speed(self, seconds: float) -> float:
        """Measure steps per second for some seconds."""
        (first, began) = self._last()
        time.sleep(seconds)
        (last, ended) = self._last()
        return (last - first) / (ended - began)


def _parts(launcher: int) -> tuple[int, int, list[int]]:
    """The process ids of the recorder, the guard and the workers."""
    parts = processes.children(launcher)
    (guard,) = [pid for pid in parts if "grd" in Path(f"/proc/{pid}/comm").read_text()]
    (recorder,) = set(parts) - {guard}
    return recorder, guard, processes.children(guard)


@contextmanager
def idle_ranks() -> Iterator[None]:
    """Run processes that top takes for the ranks of a launch."""
    started = []
    try:
        for rank in range(WATCHED):
            variables = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(WATCHED)}
            started.append(
                subprocess.Popen(
                    [sys.executable, "-S", "-c", IDLE],
                    env={**os.environ, **variables},
                    stdout=subprocess.PIPE,
                )
            )
        for process in started:
            assert process.stdout
            process.stdout.readline()
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def watching(windows: int) -> list[float]:
    """Measure the share of a core that top uses in each window, after its start."""
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
            return [_used(lambda: [_ran_ns(pid)], WATCHED_S)[0] for _ in range(windows)]
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
        "--seconds", type=float, default=WINDOW_S, metavar="S",
        help=f"of each half of a round; default {WINDOW_S:g}",
    )  # fmt: skip
    parser.add_argument(
        "--windows", type=int, default=10, metavar="N",
        help=f"in which CPU time is counted, of {WINDOW_S:g} s; default 10",
    )  # fmt: skip


if __name__ == "__main__":
    report.main("watching", __doc__, measure, ROUNDS, flags)
