"""Simulate many schedules: `python -m tests.gang --seeds 100000`, or one with all that happens:
`python -m tests.gang --trace 17`."""

import argparse
import sys
import time
from collections import Counter

from tests.gang.hosts import Broken
from tests.gang.simulation import Simulation


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--nodes", type=int, help="of each schedule; default: 2 to 6")
    parser.add_argument("--trace", type=int)
    args = parser.parse_args()
    if args.trace is not None:
        Simulation(args.trace, trace=print, nodes=args.nodes).run()
        return 0
    return simulate(range(args.first, args.first + args.seeds), args.nodes)


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


if __name__ == "__main__":
    sys.exit(main())
