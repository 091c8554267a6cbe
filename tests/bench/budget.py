"""Whether a bench ends within its budget, however busy the machine is.

    python -m tests.bench.budget [--runs 50] [--loads 0,4,20,50] [--budgets 20,30,40] [--seed 0]

Each run is a bench of two ranks beside so many busy loops, both drawn. A line has the load, the
budget, the wall time and its ratio to the budget; the last line has the largest ratio, and the
status is 1 if it is above MOST.
"""

import argparse
import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator

from tests.support.launching import clean_environ

MOST = 1.1
SETTLE_S = 3.0  # that the loops have before the bench begins
BENCH = (sys.executable, "-m", "spawnlaunch.bench", "--nproc", "2")
LOOP = (sys.executable, "-c", "while True: pass")


@contextlib.contextmanager
def busy(loops: int) -> Iterator[None]:
    """So many processes that never wait."""
    processes = [subprocess.Popen(LOOP) for _ in range(loops)]
    try:
        time.sleep(SETTLE_S if loops else 0.0)
        yield
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--loads", type=numbers, default=[0, 4, 20, 50])
    parser.add_argument("--budgets", type=numbers, default=[20, 30, 40])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng, ratios = random.Random(options.seed), []
    for _ in range(options.runs):
        load, budget_s = rng.choice(options.loads), rng.choice(options.budgets)
        with busy(load):
            others = os.getloadavg()[0]
            began = time.monotonic()
            words = (*BENCH, "--budget", f"{budget_s}s")
            done = subprocess.run(words, env=clean_environ(), capture_output=True, text=True)
            wall_s = time.monotonic() - began
        ratios.append(wall_s / budget_s)
        told = [line for line in done.stdout.splitlines() if " can show " in line]
        said = (told or done.stderr.splitlines() or [""])[0]
        print(
            f"{load:3} loops, load {others:5.1f}: budget {budget_s} s, wall {wall_s:5.1f} s, "
            f"ratio {ratios[-1]:.3f}, status {done.returncode}: {said}",
            flush=True,
        )
    print(f"largest ratio of {len(ratios)} runs: {max(ratios):.3f}")
    return int(max(ratios) > MOST)


if __name__ == "__main__":
    sys.exit(main())
