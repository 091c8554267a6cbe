"""python -m tests.machine.conformance [WORD]: the programs with this word in their name."""

import sys

from tests.machine.conformance import PROGRAMS, differences


def main() -> int:
    chosen = [name for name in PROGRAMS if not sys.argv[1:] or sys.argv[1] in name]
    found = differences(chosen)
    for name, words in found.items():
        print(f"== {name}: - Linux, + simulated\n{words}")
    print(f"{len(chosen)} programs, {len(found)} differ")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
