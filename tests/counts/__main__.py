"""Show the counts."""

import shutil
import sys
import tempfile
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests import counts
from tests.counts import limits, lines, rooms, shape
from tests.counts.imported import imported
from tests.counts.lookups import Lookups, lookups, of_the_kernel, traced
from tests.counts.walked import Function, entered
from tests.counts.ways import WAYS, Way


def main() -> int:
    """Print them all; the status is 1 where the rooms import each other as they may not."""
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
    print("\n".join(of_the_code(options.each)))
    return of_the_rooms()


def of_a_launch(way: Way, directory: Path, functions: set[Function]) -> Iterator[str]:
    """A line for each count."""
    words = way.words("nothing.py")
    yield f"{len(functions)} functions in {len({each.file for each in functions})} files entered"
    modules = imported(way, directory, *words)
    ours = sum(name.startswith("spawnlaunch") for name in modules)
    alone = len(modules - imported(way, directory, "-c", "pass"))
    yield f"{ours} modules of spawnlaunch imported, and {alone - ours} of Python's library"
    if shutil.which("strace"):
        calls = traced(way, directory, *words)
        here, bare = lookups(calls), lookups(traced(way, directory, "-c", "pass"))
        beyond = Lookups(here.stats - bare.stats, here.opens - bare.opens)
        yield f"{beyond.stats} stat and {beyond.opens} open beyond {bare.stats} and {bare.opens}"
        yield f"{of_the_kernel(calls)} of them in /proc, /sys and /dev"


def by_file(functions: set[Function]) -> Iterator[str]:
    """`run/starting.py: plan, renewed`."""
    files: dict[str, list[str]] = {}
    for each in sorted(functions):
        files.setdefault(each.file, []).append(each.name)
    for file, names in files.items():
        yield f"{file}: {', '.join(names)}"


def of_the_code(each: bool) -> Iterator[str]:
    """A line for each count of the code, with its limit; with `each`, what is counted."""
    for name, files in lines.parts().items():
        count, most = lines.lines_of_code(files), limits.LINES_OF_CODE[name]
        yield f"{name}: {count:,} lines of code in {len(files)} files (limit {most:,})"
        if name == "core":
            yield from (f"  without {path}: {why}" for path, why in lines.BESIDE.items())
    found = shape.shapes(lines.files(lines.APART))
    hard, deep = shape.complex_functions(found), shape.nested_functions(found)
    imports = sum(function.imports for function in found)
    yield f"{len(hard)} functions of complexity {shape.COMPLEX} or more (limit {limits.COMPLEX})"
    yield from (f"  {one.complexity} {_where(one)}" for one in hard if each)
    yield f"{len(deep)} functions nested deeper than {shape.DEEP} (limit {limits.NESTED})"
    yield from (f"  {one.nesting} {_where(one)}" for one in deep if each)
    yield f"{imports} imports in functions (limit {limits.IMPORTS_IN_FUNCTIONS})"
    yield from (f"  {one.imports} {_where(one)}" for one in found if each and one.imports)


def _where(function: shape.Shape) -> str:
    return f"{function.file.relative_to(rooms.PACKAGE)}: {function.name}"


def of_the_rooms() -> int:
    """Which imports which; the result is the exit status."""
    found = [arrow for arrow in rooms.arrows() if rooms.is_ours(arrow.imported)]
    between = Counter((rooms.room(each.importer), rooms.room(each.imported)) for each in found)
    print("\n".join(_table(between)))
    wrong = [*map(str, rooms.upwards(found)), *map(" <-> ".join, rooms.circles(found))]
    print("\n".join(wrong) or "no arrow upwards, no circle")
    return 1 if wrong else 0


def _table(between: Mapping[tuple[str, str], int]) -> Iterator[str]:
    """A line for each room: what it imports, and how often."""
    number = rooms.order()
    importers = sorted({importer for importer, _ in between}, key=lambda each: number.get(each, 0))
    for importer in importers:
        others = [
            f"{imported} {n}"
            for (each, imported), n in sorted(between.items())
            if each == importer != imported
        ]
        yield f"  {importer:14} imports {', '.join(others) or 'nothing'}"


if __name__ == "__main__":
    sys.exit(main())
