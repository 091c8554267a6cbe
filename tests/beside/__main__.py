"""Two launches of each trouble, one under torchrun and one here, and which is worse:

python -m tests.beside [WORD...]      those whose name has one of the words; else all
"""

import sys
import tempfile
from pathlib import Path

from tests.beside import cases, functions, hindered  # noqa: F401, each adds its own
from tests.beside.launching import CASES, SPAWNLAUNCH, TORCHRUN, Job, Outcome

WORSE = "WORSE"
LATE_S = 2.0  # by which we may be later where both are right: machines are busy


def outcome(name: str, program: str) -> Outcome:
    with tempfile.TemporaryDirectory() as directory:
        job = Job(program, Path(directory))
        try:
            return CASES[name](job)
        finally:
            job.clear()


def verdict(theirs: Outcome, ours: Outcome) -> str:
    if ours.is_right != theirs.is_right:
        return "better" if ours.is_right else WORSE
    if ours.is_right and ours.seconds > theirs.seconds + LATE_S:
        return "later"
    return "alike" if ours.is_right else "neither is right"


def main() -> int:
    worse = 0
    print("| trouble | torchrun | spawnlaunch | ours is |\n|---|---|---|---|")
    for name in CASES:
        if sys.argv[1:] and not any(word in name for word in sys.argv[1:]):
            continue
        theirs, ours = outcome(name, TORCHRUN), outcome(name, SPAWNLAUNCH)
        told = [f"{each.words} ({each.seconds:.1f} s)" for each in (theirs, ours)]
        found = verdict(theirs, ours)
        worse += found == WORSE
        print(f"| {name} | {told[0]} | {told[1]} | {found} |", flush=True)
    return int(worse > 0)


if __name__ == "__main__":
    sys.exit(main())
