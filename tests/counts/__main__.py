"""Show the counts."""

import shutil
import sys
import tempfile
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterator
from pathlib import Path

from tests import counts
from tests.counts import lines
from tests.counts.imported import imported
from tests.counts.lookups import lookups, of_the_kernel, traced
from tests.counts.walked import Function, entered
from tests.counts.ways import WAYS, Way


def main() -> int:
    """Print them all."""
    parser = ArgumentParser(
        "python -m tests.counts",
        description=counts.__doc__,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--each", action="store_true", help="every function, by its file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, way in WAYS.items():
            functions = entered(way, Path(folder))
            print(f"{name}:")
            print("\n".join(f"  {line}" for line in of_a_launch(way, Path(folder), functions)))
            if options.each:
                print("\n".join(f"    {line}" for line in by_file(functions)))
    for name, files in lines.parts().items():
        print(f"{name}: {lines.lines_of_code(files):,} lines of code in {len(files)} files")
    return 0


def of_a_launch(way: Way, directory: Path, functions: set[Function]) -> Iterator[str]:
    """A line for each count."""
    words = way.words("nothing.py")
    yield f"{len(functions)} functions in {len({each.file for each in functions})} files entered"
    modules = imported(way, directory, *words) - imported(way, directory, "-c", "pass")
    ours = sum(name.startswith("spawnlaunch") for name in modules)
    yield f"{ours} modules of spawnlaunch imported, and {len(modules) - ours} of Python's library"
    if shutil.which("strace"):
        calls, bare = traced(way, directory, *words), traced(way, directory, "-c", "pass")
        yield f"{lookups(calls) - lookups(bare)} look-ups beyond {lookups(bare)}"
        yield f"{of_the_kernel(calls)} of them in /proc, /sys and /dev"


def by_file(functions: set[Function]) -> Iterator[str]:
    """`workers/starting.py: plan, renewed`."""
    files: dict[str, list[str]] = {}
    for each in sorted(functions):
        files.setdefault(each.file, []).append(each.name)
    for file, names in files.items():
        yield f"{file}: {', '.join(names)}"


if __name__ == "__main__":
    sys.exit(main())
