"""Kill at random, hundreds of times: python -m tests.stress [--rounds N] [--seed S] [--only I].

Each round depends on the seed and its number only, so that one that fails can be played again.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.stress.rounds import GRACE_S, Round, draw, expected, has_grace, play
from tests.support.launching import heed_signals


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stress", description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", type=int, default=None, help="play this round alone")
    options = parser.parse_args()
    heed_signals()
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    numbers = range(options.rounds) if options.only is None else [options.only]
    print(f"seed {seed}, {len(numbers)} rounds", flush=True)
    failures, victims, began = 0, Counter[str](), time.monotonic()
    slowest = {True: 0.0, False: 0.0}  # with and without a grace, in seconds
    for number in numbers:
        drawn = draw(random.Random(f"{seed}:{number}"))
        fault, took_s = play_round(drawn)
        victims[drawn.victim] += 1
        slowest[has_grace(drawn)] = max(slowest[has_grace(drawn)], took_s)
        if fault:
            failures += 1
            print(f"round {number}: {drawn}\n  {fault}", flush=True)
            print(f"  again: python -m tests.stress --seed {seed} --only {number}", flush=True)
        if number % 50 == 49:
            print(f"{number + 1} rounds, {failures} failures", flush=True)
    print(
        f"seed {seed}: {len(numbers)} rounds in {time.monotonic() - began:.0f} s "
        f"({', '.join(f'{n} {who}' for who, n in sorted(victims.items()))}), "
        f"{failures} failures; all processes gone at the latest {slowest[False]:.2f} s after the "
        f"death of a launcher or guard, {slowest[True]:.2f} s else (grace {GRACE_S:g} s)"
    )
    return 1 if failures else 0


def play_round(drawn: Round) -> tuple[str, float]:
    """What was wrong ("" for nothing), and how long it took until all processes had gone."""
    with tempfile.TemporaryDirectory(prefix="stress-") as directory:
        try:
            result = play(drawn, Path(directory))
        except AssertionError as error:
            return str(error), 0.0
    if result.gone_after_s is None:
        return f"processes are left\n{result.said}", 0.0
    if result.status not in expected(drawn):
        wrong = f"status {result.status}, expected one of {sorted(expected(drawn))}"
        return f"{wrong}\n{result.said}", result.gone_after_s
    if "internal error" in result.said:
        return result.said, result.gone_after_s
    return "", result.gone_after_s


if __name__ == "__main__":
    sys.exit(main())
