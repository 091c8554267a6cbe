"""The functions of spawnlaunch that a launch enters.

The launcher is run in a Python that is called back for each call. Every process of a launch notes
each function when it enters it for the first time, at once: the guard and the workers are forked,
and an exec forgets what was in memory. This file is that program too, in a process of its own:

    python tests/counts/walked.py FILE SCRIPT_OR_FLAG...
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

PACKAGE = Path(__file__).parents[2] / "spawnlaunch"
CO_OPTIMIZED = 1  # of functions, and not of the bodies of modules and classes


class Function(NamedTuple):
    """A function that was entered."""

    file: str  # below the package
    line: int
    name: str


def entered(way: object, directory: Path) -> set[Function]:
    """The functions that a launch enters, in whichever of its processes."""
    from tests.counts.ways import Way
    from tests.support.launching import run

    assert isinstance(way, Way)
    notes = directory / "functions"
    notes.write_text("")
    script = directory / "nothing.py"
    script.write_text("")
    words = way.words(str(script))[2:]
    run(sys.executable, __file__, notes, *words, environ=way.environ(), check=True)
    lines = (line.split("\t") for line in notes.read_text().splitlines())
    return {Function(file, int(line), name) for file, line, name in lines}


def main(notes: str, words: Sequence[str]) -> None:
    """Be the launcher, and write down what it enters."""
    package, seen = f"{PACKAGE}{os.sep}", set[CodeType]()
    out = os.open(notes, os.O_WRONLY | os.O_APPEND)

    def see(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or code in seen:
            return
        seen.add(code)
        file = code.co_filename
        if file.startswith(package) and code.co_flags & CO_OPTIMIZED and code.co_name[0] != "<":
            line = f"{file.removeprefix(package)}\t{code.co_firstlineno}\t{code.co_name}\n"
            os.write(out, line.encode())

    sys.argv = ["spawnlaunch", *words]
    sys.path[0] = ""  # as `python -m` has it
    sys.setprofile(see)
    from spawnlaunch.__main__ import launch

    sys.exit(launch())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
