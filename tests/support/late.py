"""A package that takes seconds to import: only those who use it shall wait.

Each of the processes that run tests side by side imports all files of tests.
"""

from importlib import import_module
from typing import Any


class Late:
    """The module of this name, which is imported when something of it is asked for."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest asks each object of a file for its __wrapped__
            raise AttributeError(name)
        return getattr(import_module(self.name), name)
