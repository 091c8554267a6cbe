"""The page of a record; see HELP."""

import sys

from spawnlaunch.base import own_path

PATH = own_path.take() if __name__ == "__main__" else sys.path

import gc
import os
from collections.abc import Sequence

from spawnlaunch.base import commands
from spawnlaunch.watch import page, story
from spawnlaunch.workers import files

NAME = "spawnlaunch report"
# Not the docstring, which python -OO leaves out.
HELP = """Draw what --record has kept of launches: one HTML page that needs no network.

spawnlaunch report DIR               writes DIR/report.html
spawnlaunch report DIR --html FILE   writes FILE; - is stdout
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page; the result is the exit status."""
    parser = commands.Parser(NAME, HELP)
    parser.add_argument("directory", metavar="DIR", help="what --record was given")
    parser.add_argument("--html", metavar="FILE", help="where to write; default DIR/report.html")
    options = parser.parse_args(argv)
    gc.disable()  # all of a record is kept until the page is written
    records = story.read(options.directory)
    if not records.launches:
        why = records.unread[0] if records.unread else "*.jsonl"
        words = f"has no record of a launch ({why}); name the directory of --record"
        commands.print_error(f"{options.directory} {words}", NAME)
        return 2
    drawn = page.page(records)
    if options.html == "-":
        return commands.print_page(drawn, NAME)
    path = options.html or os.path.join(options.directory, "report.html")
    try:
        files.write(path, drawn)
    except OSError as error:
        words = f"cannot write {path}: {error.strerror}; name another file with --html"
        commands.print_error(words, NAME)
        return 2
    return commands.print_page(path, NAME)


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        sys.path[:] = PATH
