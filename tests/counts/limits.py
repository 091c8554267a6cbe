"""The most that a launch may come to, in one table.

The figures are what was reached when they were last set, with a fiftieth more for other versions of
Python and other machines. Where one is too low, save elsewhere before it is raised; where it has
become too high, lower it: `python -m tests.counts` shows what is reached.
"""

from typing import NamedTuple


class Limits(NamedTuple):
    """Of one launch."""

    functions: int  # of spawnlaunch that are entered
    files: int  # that these are in
    modules: int  # of spawnlaunch that are imported
    opened: int  # files, and kinds of files of the kernel: what one needs can be saved in the other
    lookups: int  # stat and open, beyond those of a Python that does nothing


LIMITS = {
    "two workers": Limits(202, 45, 50, 54, 580),
    "one worker": Limits(186, 44, 50, 52, 568),
    "a task": Limits(149, 34, 42, 33, 474),
}

# The launcher proper.
LINES_OF_CODE = 7_970
FILES = 74
