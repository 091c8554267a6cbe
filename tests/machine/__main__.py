"""python -m tests.machine --seeds N: play generated scenarios; --seed S --trace: show one."""

from __future__ import annotations

import argparse
import errno
import sys
import time
from collections.abc import Sequence

from tests.machine.generating import generated
from tests.machine.play import play
from tests.machine.properties import broken
from tests.machine.scenario import Refusal, Scenario


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.machine", description=__doc__)
    parser.add_argument("--seeds", type=int, metavar="N", default=1000)
    parser.add_argument("--first", type=int, default=0, metavar="S")
    parser.add_argument("--seed", type=int, metavar="S")
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--nodes", type=int, metavar="N", help="at most so many; else one")
    parser.add_argument("--refuse", metavar="CALL:ERRNO", help="such as memfd_create:EPERM")
    chosen = parser.parse_args(argv)

    def scenario(seed: int) -> Scenario:
        made = generated(seed, 2 + seed % (chosen.nodes - 1) if chosen.nodes else None)
        if not chosen.refuse:
            return made
        call, _, name = chosen.refuse.partition(":")
        return made._replace(refused=Refusal(call, getattr(errno, name)))

    if chosen.seed is not None:
        played = play(scenario(chosen.seed), chosen.trace)
        print(played.scenario)
        print("\n".join(played.kernel.trace))
        for host in played.hosts:
            codes = [process.code for process in host.launchers]
            print(
                f"{host.node.name}: stdout:\n{host.out.text}stderr:\n{host.err.text}codes {codes}"
            )
        print("\n".join(broken(played)) or "nothing is broken")
        return 0
    since, wrong = time.process_time(), 0
    for seed in range(chosen.first, chosen.first + chosen.seeds):
        found = broken(play(scenario(seed)))
        if found:
            wrong += 1
            print(f"seed {seed}: " + "\n   ".join(each[-300:] for each in found))
    cost_ms = (time.process_time() - since) * 1000 / chosen.seeds
    print(f"{chosen.seeds} seeds, {wrong} broken, {cost_ms:.1f} ms of CPU a seed")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
