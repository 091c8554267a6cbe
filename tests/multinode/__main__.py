"""Simulate many schedules: `python -m tests.multinode --seeds 100000`.

Or one with all that happens: `--trace 17`; or the mutants of the rules: `--mutants`.
"""

import argparse
import sys
import time
from collections import Counter

from tests.multinode.hosts import Broken
from tests.multinode.mutants import MUTANTS, Mutant
from tests.multinode.simulation import Simulation
from tests.support import edits


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--nodes", type=int, help="of each schedule; default: 2 to 6")
    parser.add_argument("--trace", type=int)
    parser.add_argument("--mutants", action="store_true")
    args = parser.parse_args()
    if args.trace is not None:
        Simulation(args.trace, trace=print, nodes=args.nodes).run()
        return 0
    seeds = range(args.first, args.first + args.seeds)
    return mutants(seeds) if args.mutants else simulate(seeds, args.nodes)


def simulate(seeds: range, nodes: int | None = None) -> int:
    """Run them all; name those in which something did not hold."""
    seen: Counter[str] = Counter()
    events, broken, began = 0, 0, time.process_time()
    for seed in seeds:
        simulation = Simulation(seed, nodes=nodes)
        try:
            simulation.run()
        except Broken as error:
            broken += 1
            print(f"seed {seed}: {error}", flush=True)
        seen += simulation.seen
        events += simulation.events
        if (seed + 1) % 5000 == 0:
            print(f"{seed + 1}: {broken} broken", flush=True)
    for what, count in sorted(seen.items()):
        print(f"{count:9}  {what}")
    seconds = time.process_time() - began
    print(f"{len(seeds)} seeds, {events} events, {seconds:.1f} s CPU, {broken} broken")
    return int(broken > 0)


def mutants(seeds: range) -> int:
    """Each fault in the rules must be found by one of the seeds."""
    alive = 0
    for mutant in MUTANTS:
        seed = found_by(seeds, mutant)
        alive += seed is None
        print(
            f"{mutant.rule}: {'NOT FOUND' if seed is None else f'found by seed {seed}'}", flush=True
        )
    return int(alive > 0)


def found_by(seeds: range, mutant: Mutant) -> int | None:
    with edits.instead(mutant.codes):
        for seed in seeds:
            try:
                Simulation(seed).run()
            except (AssertionError, ValueError, IndexError, KeyError):
                return seed
    return None


if __name__ == "__main__":
    sys.exit(main())
