"""A launch costs its ranks and its readers no more than it once did.

Each module and each file is a look-up on a shared file system, times all ranks. What Python itself
needs, and the modules of its library that are in LIBRARY, are measured in the same run and taken
off, so that the figures hold for other versions of Python and on other machines. Of what belongs
to the kernel (/sys, /proc and /dev, which differ from machine to machine) what reading the node
opens is taken off; tests/node/test_cost.py limits that.

How many functions it enters, how hard they are to follow, and how many lines there are, is what it
costs a reader. The limits are in tests/counts/limits.py.
"""

from pathlib import Path

import pytest

from spawnlaunch import node
from tests.counts import limits, lines, of_tests, rooms, shape
from tests.counts.imported import imported
from tests.counts.limits import LIMITS
from tests.counts.lookups import lookups, opened, traced
from tests.counts.walked import entered
from tests.counts.ways import WAYS
from tests.support.required import require_programs

require_programs("strace", package="strace")

# What the launch path imports of Python's library; more of it is more than these.
LIBRARY = """
import __future__, ctypes, errno, gc, runpy, select, zlib, _socket
"""
# One, and eleven more: if, elif, and, or, a conditional expression, a comprehension, for, while,
# except, case, assert.
ONE = """
def one(a, b):
    import os
    if a and b or os:
        return a if b else [each for each in a]
    elif b:
        for each in a:
            while each:
                each()
    try:
        assert a
    except OSError:
        match a:
            case 1:
                b()
    def inner():
        if a:
            b()
"""
TWO = """
def two(a):
    if a:
        for b in a:
            with b:
                if b:
                    a()
    elif b:
        pass
"""
READING = "from spawnlaunch import node; node.read()"

needs_no_device = pytest.mark.skipif(
    bool(node.read().devices), reason="there are devices here, which are read as well"
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where launches run, and what they compile is kept: a checkout may have been compiled before
    it was changed, and a file that is not compiled is opened twice."""
    directory = tmp_path_factory.mktemp("counts")
    (directory / "worker.py").write_text("")
    return directory


@pytest.mark.parametrize("name", WAYS)
def test_no_more_modules_are_imported(name: str, directory: Path) -> None:
    way = WAYS[name]
    ours = imported(way, directory, *way.words("worker.py"))
    ours -= imported(way, directory, "-c", LIBRARY)
    assert {module for module in ours if not module.startswith("spawnlaunch")} == set()
    assert len(ours) <= LIMITS[name].modules
    files = {str(rooms.modules()[module]) for module in ours if module in rooms.modules()}
    beside = tuple(str(rooms.PACKAGE / each) for each in lines.BESIDE)
    assert [file for file in files if file.startswith(beside)] == []


@pytest.mark.parametrize("name", WAYS)
def test_no_more_files_are_opened(name: str, directory: Path) -> None:
    way = WAYS[name]
    launch = opened(traced(way, directory, *way.words("worker.py")))
    library = opened(traced(way, directory, "-c", LIBRARY))
    reading = opened(traced(way, directory, "-c", READING))
    files = launch.files - library.files
    of_the_kernel = launch.of_the_kernel - reading.of_the_kernel
    assert files + of_the_kernel <= LIMITS[name].opened, (launch, library, reading)


@needs_no_device
@pytest.mark.parametrize("name", WAYS)
def test_no_more_functions_are_entered(name: str, directory: Path) -> None:
    functions = entered(WAYS[name], directory)
    assert len(functions) <= LIMITS[name].functions
    assert len({each.file for each in functions}) <= LIMITS[name].files


@needs_no_device
@pytest.mark.parametrize("name", WAYS)
def test_no_more_is_looked_up(name: str, directory: Path) -> None:
    way = WAYS[name]
    launch = lookups(traced(way, directory, *way.words("worker.py")))
    bare = lookups(traced(way, directory, "-c", "pass"))
    assert launch.both - bare.both <= LIMITS[name].lookups, (launch, bare)


@pytest.mark.parametrize("part", lines.parts())
def test_no_more_is_written(part: str) -> None:
    assert lines.lines_of_code(lines.parts()[part]) <= limits.LINES_OF_CODE[part]


def test_there_are_no_more_files() -> None:
    assert len(lines.files(lines.APART)) <= limits.FILES


def test_what_stands_beside_the_core_is_there() -> None:
    assert [name for name in lines.BESIDE if not (rooms.PACKAGE / name).exists()] == []


def test_functions_are_no_harder_to_follow() -> None:
    functions = shape.shapes(lines.files(lines.APART))
    hard, deep = shape.complex_functions(functions), shape.nested_functions(functions)
    assert len(hard) <= limits.COMPLEX, hard
    assert len(deep) <= limits.NESTED, deep
    assert sum(each.imports for each in functions) <= limits.IMPORTS_IN_FUNCTIONS


def test_every_branch_counts(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(ONE)
    (tmp_path / "two.py").write_text(TWO)
    one, inner, two = shape.shapes([tmp_path / "one.py", tmp_path / "two.py"])
    assert (one.complexity, one.nesting, one.imports) == (12, 3, 1)
    assert (inner.complexity, inner.nesting, inner.imports) == (2, 1, 0)
    assert (two.complexity, two.nesting, two.imports) == (5, 4, 0)
    assert shape.complex_functions([one, inner, two]) == [one]
    assert shape.nested_functions([one, inner, two]) == [two]


def test_no_test_touches_a_private_name() -> None:
    assert of_tests.private_names() == []


def test_whole_sentences_stand_in_the_table_of_messages() -> None:
    sentences = of_tests.sentences()
    assert len(sentences) <= limits.SENTENCES, sentences
