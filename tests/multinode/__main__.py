"""Simulate many schedules: `python -m tests.multinode --seeds 100000`; one with all that happens:
`python -m tests.multinode --trace 17`; or mutants: `python -m tests.multinode --mutants`.
"""

import argparse
import sys
import time
import traceback
from collections import Counter

from tests.multinode.mutants import MUTANTS, found_by
from tests.multinode.simulation import Simulation


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--nodes", type=int, help="of each schedule; default: 2 to 9")
    parser.add_argument("--trace", type=int)
    parser.add_argument("--mutants", action="store_true")
    args = parser.parse_args()
    if args.mutants:
        for mutant in MUTANTS:
            seed = found_by(range(args.first, args.first + args.seeds), mutant)
            print(f"{mutant.rule}: {'NOT FOUND' if seed is None else seed}", flush=True)
        return 0
    if args.trace is not None:
        Simulation(args.trace, trace=print, nodes=args.nodes).run()
        return 0
    seen: Counter[str] = Counter()
    events, broken, began = 0, 0, time.process_time()
    for seed in range(args.first, args.first + args.seeds):
        simulation = Simulation(seed, nodes=args.nodes)
        try:
            simulation.run()
        except Exception as error:
            broken += 1
            where = traceback.extract_tb(error.__traceback__)[-1]
            print(f"seed {seed}: {type(error).__name__} {error} ({where.name})"[:400], flush=True)
        seen += simulation.seen
        events += simulation.events
        if broken > 20:
            break
    for what, count in sorted(seen.items()):
        print(f"{count:9}  {what}")
    seconds = time.process_time() - began
    print(f"{args.seeds} seeds, {events} events, {seconds:.1f} s CPU, {broken} broken")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
