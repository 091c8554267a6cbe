"""Compare launchers: how fast they start, how much memory they use, how fast they notice a death.

    python -m benchmarks.launch [--rounds 7] [--workers 1,2,8,64] [--without torchrun,...] [--write]

Workers are Python programs that import next to nothing.

    start    from starting the launcher to the first line of the last worker
    memory   PSS of the launcher and its helpers while the workers sleep
    death    from the end of one worker (status 7) to the end of the launcher; the others sleep
"""

import time
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from benchmarks import report
from benchmarks.launchers import Launcher, launchers
from benchmarks.processes import ENOUGH_S, finish, lines, seconds_to, start
from benchmarks.report import Goal, Section, cell, goal
from benchmarks.turns import turns

ROUNDS = 7
WORKER = Path(__file__).with_name("launched_worker.py")
SETTLED_S = 0.5  # by then a launcher has freed the memory of its start
MODE = "BENCH_WORKER"
OF_A_SHELL_LOOP = {8: 1.7, 64: 1.3}  # the most, by the number of workers

Taken = dict[tuple[str, str], list[float]]  # by launcher and column


def time_to_last_line(launcher: Launcher, n: int) -> float:
    """The seconds from the start of a launcher to its last worker's first line."""
    return seconds_to(launcher.command(n, WORKER), {MODE: "print"}, n, "worker")


def memory_mib(launcher: Launcher, n: int) -> float:
    """The PSS of a launcher's processes, without the workers and their descendants."""
    process = start(launcher.command(n, WORKER), {MODE: "sleep"})
    try:
        workers = {int(line.split()[1]) for line in lines(process, n)}
        time.sleep(SETTLED_S)
        return sum(pss_kib(pid) for pid in helpers(process.pid, workers)) / 1024
    finally:
        finish(process)


def helpers(pid: int, workers: set[int]) -> Iterator[int]:
    if pid not in workers:
        yield pid
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in path.read_text().split():
                yield from helpers(int(child), workers)


def pss_kib(pid: int) -> int:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))


def time_from_death(launcher: Launcher, n: int) -> float:
    """The seconds from the death of a worker to the end of its launcher."""
    process = start(launcher.command(n, WORKER), {MODE: "die"})
    try:
        printed = lines(process, n + 1)
        process.wait(ENOUGH_S)
        ended = time.monotonic()
        return ended - max(float(line.split()[1]) for line in printed if line.startswith("dies "))
    finally:
        finish(process)


def measure(options: Namespace) -> Section:
    """Measure all installed launchers."""
    counts = [int(word) for word in options.workers.split(",")]
    without = options.without.split(",")
    rivals = [launcher for launcher in launchers() if launcher.name not in without]
    times: Taken = defaultdict(list)
    for launcher in rivals:
        time_to_last_line(launcher, 1)  # compiles, and fills the page cache
    for launcher in turns(options.rounds, rivals):
        for n in counts:
            times[launcher.name, _start(n)].append(1e3 * time_to_last_line(launcher, n))
        if launcher.watches:
            times[launcher.name, DEATH].append(1e3 * time_from_death(launcher, 8))
            times[launcher.name, MEMORY].append(memory_mib(launcher, 8))
    columns = [*map(_start, counts), DEATH, MEMORY]
    return Section(
        "launch",
        "Launching",
        f"""Workers that do nothing; {options.rounds} rounds. From starting the launcher to the
        first line of the last worker; from the death of one worker of 8 to the end of the launcher;
        memory (PSS) of the launcher and its helpers with 8 workers.""",
        ["launcher", *columns],
        [[each.name, *(cell(times[each.name, column]) for column in columns)] for each in rivals],
        list(goals(times)),
    )


def goals(times: Taken) -> Iterator[Goal]:
    """Yield goals for the start, as a multiple of a shell loop, which pins and watches nothing."""
    for n, most in OF_A_SHELL_LOOP.items():
        start_ms, loop = times.get(("spawnlaunch", _start(n))), times.get(("shell loop", _start(n)))
        if start_ms and loop:
            yield goal(f"Start of {n}, of a shell loop's", start_ms, loop, most)


DEATH, MEMORY = "death to end, ms", "memory, MiB"


def _start(n: int) -> str:
    return f"start of {n}, ms"


def flags(parser: ArgumentParser) -> None:
    parser.add_argument("--workers", default="1,2,8,64", metavar="LIST", help="default %(default)s")
    parser.add_argument("--without", default="", metavar="LIST", help="launchers to leave out")


if __name__ == "__main__":
    report.main("launch", __doc__, measure, ROUNDS, flags)
