"""The programs beside the launcher as words of its command: spawnlaunch check, and the others.

    spawnlaunch --nproc 8 check --all   a worker program, as -m spawnlaunch.check
    spawnlaunch --nproc 8 train         the bundled loop, as without a script
    spawnlaunch bench --nproc 8         starts its own workers: no flag of the launcher's before it
    spawnlaunch top                     starts none, as report and scripts

A file of that name, or a directory that Python can run, is the user's script, and goes before.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

from spawnlaunch import errors, flags

CHECK = "spawnlaunch.check"


def named(word: str, args: tuple[str, ...], is_bare: bool) -> flags.Program:
    """What the workers run: the user's script of that name, if there is one, or a program of ours.

    `train` and `check` run in workers. For the others it raises Instead, so that `__main__` becomes
    `python -m spawnlaunch.WORD` in place of a launch; or FlagsError, where a launcher's flag stands
    before the word (not `is_bare`).
    """
    if os.path.isfile(word) or os.path.isfile(os.path.join(word, "__main__.py")):
        return flags.Program("script", word, args)
    if word == "train":
        return flags.Program("bundled", word, args)
    if word == "check":
        return flags.Program("module", CHECK, args)
    if not is_bare:
        raise errors.FlagsError(
            f"{word} does not run in workers, so the launcher's flags do nothing there; its "
            f"own go behind it: type {flags.HERE} {word} --help"
        )
    raise flags.Instead(f"spawnlaunch.{word}", *args)


def need_torch(program: flags.Program, python: str) -> None:
    """Raise UsageError where a program of ours needs torch, and there is none."""
    if python == sys.executable and find_spec("torch") is None:
        what = "the check" if program.target == CHECK else "the bundled training loop"
        raise errors.UsageError(
            f"{what} needs torch, which is not installed; type pip install torch"
        )
