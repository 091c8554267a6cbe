"""The example of bench.md, from a real bench on this machine.

python -m docs.bench_example      on a quiet machine: writes the page's example
"""

import shlex
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parent
PAGE = DOCS / "bench.md"
TYPED = "spawnlaunch bench --nproc 2 --workloads train,compute --budget 2m"
MARK = "<!-- made by: python -m docs.bench_example -->\n"
TEST = "<!-- runs in: tests/bench/test_run.py -->\n"


def example(page: str) -> str:
    """The block of the page: what is typed, and what was printed."""
    return f"{MARK}{TEST}```console\n$ {TYPED}\n```\n```\n{page}```\n"


def main() -> None:
    words = [sys.executable, "-m", *shlex.split(TYPED)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    text = PAGE.read_text(encoding="utf-8")
    before, line, rest = text.partition(MARK)
    assert line, f"{PAGE} has no line {MARK!r}"
    after = rest.split("```\n", 3)[-1]
    PAGE.write_text(before + example(done.stdout) + after, encoding="utf-8")


if __name__ == "__main__":
    main()
