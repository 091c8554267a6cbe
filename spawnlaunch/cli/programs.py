"""The programs beside the launcher, as words of its command: spawnlaunch check and others.

    spawnlaunch --nproc 8 check --all   a worker program, as the module spawnlaunch.check
    spawnlaunch --nproc 8 train         the bundled loop, as without a script
    spawnlaunch bench --nproc 8         starts its own workers: no flag of the launcher's before it
    spawnlaunch top                     starts no workers, nor do report and scripts

A file of that name, or a directory that Python can run, is the user's script, and takes precedence.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec

from spawnlaunch.base import errors, reading
from spawnlaunch.cli import flags

CHECK = "spawnlaunch.check"


def named(word: str, args: tuple[str, ...], is_bare: bool) -> flags.Program:
    """Return the user's script of this name, if there is one, or a program of spawnlaunch.

    `train` and `check` run in workers. For the others it raises Instead, so that `__main__` becomes
    `python -m spawnlaunch.WORD` in place of a launch; or FlagsError, where a launcher's flag comes
    before the word (not `is_bare`). Raises UsageError where neither script nor program exists.
    """
    if os.path.isfile(word) or os.path.isfile(os.path.join(word, "__main__.py")):
        return flags.Program("script", word, args)
    if word not in flags.PROGRAMS:
        raise errors.UsageError(_missing_script(word))
    if word == "train":
        return flags.Program("bundled", word, args)
    if word == "check":
        return flags.Program("module", CHECK, args)
    if not is_bare:
        raise errors.FlagsError(
            f"{word} does not run in workers, so the launcher's flags do nothing there; its "
            f"own go after it: run {flags.HERE} {word} --help"
        )
    raise flags.Instead(f"spawnlaunch.{word}", *args)


def _missing_script(word: str) -> str:
    from difflib import get_close_matches

    message = f"script {word!r} not found: there is no {reading.absolute(word, 'script')}"
    if near := get_close_matches(word, (*flags.PROGRAMS, "--help"), n=1):
        return f"{message}; did you mean {flags.HERE} {near[0]}?"
    here = f"{message}; check the path, or use"
    name = word.removesuffix(".py")
    return f"{here} -m {name} for a module, --no-python {word} for a program"


def after_script(program: flags.Program) -> Iterator[str]:
    """Yield a line about --nproc after a script that does not seem to read it."""
    if program.kind != "script" or not os.path.isfile(program.target):
        return
    try:
        with open(program.target, "rb") as script:
            reads_nproc = b"nproc" in script.read()
    except OSError:
        return  # Python reports the error
    for number, word in enumerate(program.args):
        name, _, value = word.replace("_", "-").partition("=")
        if name in ("--nproc", "--nproc-per-node") and not reads_nproc:
            value = value or "".join(program.args[number + 1 : number + 2])
            yield (
                f"{name} {value} is after {program.target}, so the script gets it and the "
                f"launcher does not; run {flags.HERE} {name} {value} {program.target}"
            )
            return


def need_torch(program: flags.Program, python: str) -> None:
    """Raise UsageError where a program of spawnlaunch needs torch, and torch is missing."""
    if python == sys.executable and find_spec("torch") is None:
        program_name = "the check" if program.target == CHECK else "the bundled training loop"
        from spawnlaunch.cli import active

        other = active.other(python, os.environ, active.MISSING[0])
        remedy = other if "PYTHON_EXEC" in other else "run pip install torch"
        raise errors.UsageError(f"{program_name} needs torch, which is not installed; {remedy}")
