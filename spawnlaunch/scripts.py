"""The scripts and manifests that come with the package; see HELP."""

import sys

from spawnlaunch.base import own_path

PATH = own_path.take() if __name__ == "__main__" else sys.path

import re
from collections.abc import Sequence
from pathlib import Path

from spawnlaunch.base import commands

NAME = "spawnlaunch scripts"
# Not the docstring, which python -OO leaves out.
HELP = """The scripts and manifests that come with the package, to copy and edit.

spawnlaunch scripts                       lists them, with the purpose of each
spawnlaunch scripts nodes.sh > nodes.sh   one of them
"""
HERE = Path(__file__).parent
FILES = {
    path.name: path
    for folder in ("slurm", "kubernetes")
    for path in sorted((HERE / folder).glob("*"))
    if path.suffix in (".sh", ".yaml")
}


def main(argv: Sequence[str]) -> int:
    """Print or copy the scripts; the result is the exit status."""
    if not argv:
        rows = []
        for name, path in FILES.items():
            lines = path.read_text(encoding="utf-8").splitlines()
            comment = " ".join(line[2:] for line in lines if line.startswith("# "))
            purpose = re.split(r"[.:] ", comment, maxsplit=1)[0]  # the first sentence, to a colon
            rows.append(f"{name:20}{purpose}\n")
        return commands.print_page("".join(rows).rstrip("\n"), NAME)
    if argv[0] in ("-h", "--help"):
        return commands.print_page(HELP.rstrip("\n"), NAME)
    if len(argv) > 1 or argv[0] not in FILES:
        words = f"{' '.join(argv)!r} is none of the scripts; use one of {', '.join(FILES)}"
        commands.print_error(words, NAME)
        return 2
    return commands.print_page(FILES[argv[0]].read_text(encoding="utf-8").rstrip("\n"), NAME)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    finally:
        sys.path[:] = PATH
