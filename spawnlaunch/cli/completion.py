"""Make the script by which a shell completes the launcher's flags: shtab, from their table."""

from __future__ import annotations

import argparse
from typing import Any

from spawnlaunch.base import errors
from spawnlaunch.cli import values
from spawnlaunch.cli.flags import FLAGS

# The words to offer for flags with readers that accept other text as well.
WORDS = {
    "--nproc": ("auto", "gpu", "cpu"),
    "--bind": values.NAMES,
    "--rdzv-backend": ("static", "c10d"),
}


def script(shell: str) -> str:
    """Return the script that bash, zsh or fish evaluates. Raises UsageError without shtab."""
    try:
        import shtab
    except ImportError:
        raise errors.UsageError(
            "--completion needs shtab, which is not installed; type pip install "
            "'spawnlaunch[completion]'"
        ) from None
    files = {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY}
    parser = argparse.ArgumentParser("spawnlaunch", add_help=False)
    for flag in FLAGS:
        how: dict[str, Any] = {"action": "store_true"}
        if flag.read and flag.alone is None:
            words = WORDS.get(flag.name) or (() if callable(flag.read) else tuple(flag.read))
            how = {"choices": words or None}
        said = flag.help.replace("%", "%%")
        action: Any = parser.add_argument(flag.name, *flag.also, help=said, **how)
        if flag.shown in files:
            action.complete = files[flag.shown]
    program: Any = parser.add_argument("script", nargs="*")
    program.complete = shtab.FILE
    return str(shtab.complete(parser, shell))
