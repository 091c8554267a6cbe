"""Try many cases of a subject, and show those that fail, each with the seed that makes it again."""

import argparse
import sys
from itertools import islice

from tests.fuzz import engine, trees
from tests.fuzz.subjects import SUBJECTS

SHOWN = 5  # failures, after which it ends
CASE_CHARS = 2000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("subject", choices=SUBJECTS)
    parser.add_argument("--seed", type=int, default=1, help="of the first case (1)")
    parser.add_argument("--count", type=int, default=1000, help="of cases (1000)")
    parser.add_argument("--real", action="store_true", help="as commands, and not in this process")
    options = parser.parse_args()
    subject = SUBJECTS[options.subject]
    try:
        failed = engine.failures(subject, options.seed, options.count, options.real)
        found = list(islice(shown(failed, options.subject, options.real), SHOWN))
    finally:
        trees.remove()
    print(f"{options.subject}: seeds {options.seed} to {options.seed + options.count - 1}: "
          f"{len(found) or 'none'} failed")  # fmt: skip
    return bool(found)


def shown(failed, subject: str, real: bool):
    for failure in failed:
        print(f"{failure.case!r}"[:CASE_CHARS])
        print(failure.why[-CASE_CHARS * 2 :])
        again = f"{subject} --seed {failure.seed} --count 1{' --real' if real else ''}"
        print(f"again: python -m tests.fuzz {again}\n", flush=True)
        yield failure


if __name__ == "__main__":
    sys.exit(main())
