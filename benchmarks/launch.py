"""Launchers against each other: how fast they start, how much they weigh, how fast they notice.

    python -m benchmarks.launch [--rounds 7] [--workers 1,2,8,64] [--without torchrun,...]

All launchers take turns in every round, so that a machine that gets slower gets slower for all of
them; the figures are medians. Workers are Python programs that import next to nothing.

    start    from starting the launcher to the first line of the last worker
    memory   PSS of the launcher and its helpers while the workers sleep
    death    from the end of one worker (status 7) to the end of the launcher; the others sleep
"""

import argparse
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median

from benchmarks.launchers import Launcher, launchers

WORKER = Path(__file__).with_name("launched_worker.py")
ENOUGH_S = 120.0


def start(command: list[str], how: str) -> subprocess.Popen[bytes]:
    """Start a launcher; Python may keep what it has compiled, as it does for installed packages."""
    environ = {**os.environ, "BENCH_WORKER": how, "PYTHONPATH": str(WORKER.parent.parent)}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.Popen(
        command,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def lines(process: subprocess.Popen[bytes], count: int) -> list[str]:
    """The first lines that the workers print, without a launcher's prefix."""
    assert process.stdout
    data = b""
    while data.count(b"\n") < count:
        more = os.read(process.stdout.fileno(), 65536)
        if not more:
            raise RuntimeError(f"{process.args!r} ended after {data!r}")
        data += more
    return re.sub(r"^\[\d+\] ", "", data.decode(), flags=re.MULTILINE).splitlines()


def finish(process: subprocess.Popen[bytes], signum: int = signal.SIGTERM) -> None:
    """End what still runs, whatever kind of launcher it is."""
    if process.poll() is None:
        os.killpg(process.pid, signum)
    try:
        process.wait(ENOUGH_S)
    finally:
        if process.stdout:
            process.stdout.close()


def time_to_last_line(launcher: Launcher, n: int) -> float:
    began = time.monotonic()
    process = start(launcher.command(n, WORKER), "print")
    try:
        lines(process, n)
        return time.monotonic() - began
    finally:
        process.wait(ENOUGH_S)
        finish(process)


def memory_mib(launcher: Launcher, n: int) -> float:
    """PSS of everything that is not a worker, nor started by one."""
    process = start(launcher.command(n, WORKER), "sleep")
    try:
        workers = {int(line.split()[1]) for line in lines(process, n)}
        time.sleep(0.5)  # steady: what is freed after the start has been freed
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
    process = start(launcher.command(n, WORKER), "die")
    try:
        said = lines(process, n + 1)
        process.wait(ENOUGH_S)
        ended = time.monotonic()
        return ended - max(float(line.split()[1]) for line in said if line.startswith("dies "))
    finally:
        finish(process)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.launch")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--workers", default="1,2,8,64")
    parser.add_argument("--without", default="", help="launchers to leave out, by name")
    options = parser.parse_args()
    counts = [int(word) for word in options.workers.split(",")]
    rivals = [one for one in launchers() if one.name not in options.without.split(",")]
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    for launcher in rivals:
        time_to_last_line(launcher, 1)  # compiles, and fills the page cache
    for number in range(options.rounds):
        turn = number % len(rivals)
        for launcher in rivals[turn:] + rivals[:turn]:
            for n in counts:
                times[launcher.name, f"start {n}"].append(1e3 * time_to_last_line(launcher, n))
            if launcher.watches:
                times[launcher.name, "death 8"].append(1e3 * time_from_death(launcher, 8))
                times[launcher.name, "memory 8"].append(memory_mib(launcher, 8))
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
    columns = [*(f"start {n}" for n in counts), "death 8", "memory 8"]
    print("\n".join(table(rivals, columns, times, options.rounds)))


def table(
    rivals: list[Launcher],
    columns: list[str],
    times: dict[tuple[str, str], list[float]],
    rounds: int,
) -> Iterator[str]:
    yield f"{machine()}; median of {rounds} (least to most), ms, memory in MiB"
    yield " | ".join(["launcher".ljust(12), *(column.rjust(20) for column in columns)])
    for launcher in rivals:
        cells = (cell(times.get((launcher.name, column), [])) for column in columns)
        yield " | ".join([launcher.name.ljust(12), *cells])
    ours = rivals[0].name
    for other in rivals[1:]:
        ratios = []
        for column in columns:
            mine, theirs = times.get((ours, column)), times.get((other.name, column))
            ratios.append(f"{median(mine) / median(theirs):.3f}" if mine and theirs else "-")
        yield " | ".join([f"/ {other.name}".ljust(12), *(ratio.rjust(20) for ratio in ratios)])


def cell(values: list[float]) -> str:
    if not values:
        return "-".rjust(20)
    return f"{median(values):.1f} ({min(values):.0f}-{max(values):.0f})".rjust(20)


def machine() -> str:
    cpus = len(os.sched_getaffinity(0))
    names = [f"Python {platform.python_version()}"]
    for package in ("torch", "accelerate"):
        with suppress(PackageNotFoundError):
            names.append(f"{package} {version(package)}")
    load = os.getloadavg()[0]
    return f"{cpus} CPUs, Linux {platform.release()}, {', '.join(names)}, load {load:.1f}"


if __name__ == "__main__":
    main()
