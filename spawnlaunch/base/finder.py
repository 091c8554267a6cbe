"""Find our own modules with two look-ups each, where Python's finder takes seven.

In task mode every rank imports some forty of them, from a file system that thousands of ranks ask
at the same time. Where each of them is, is known: so the source is looked at once (its time and
size tell whether the compiled file is its own), and the compiled file is read without asking how
long it is. All else is Python's own loader. What is not found here, as in a zip file or without
sources, Python's finder looks for.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from importlib.util import spec_from_file_location

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

PACKAGE = __name__.partition(".")[0]
HERE = os.path.dirname(os.path.dirname(__file__))
AT_ONCE = 1 << 15  # bytes; for over 128 KiB malloc(3) would map memory anew each time


class Loader(SourceFileLoader):
    """Python's loader of a source file, which was looked at when it was found."""

    seen: os.stat_result

    def path_stats(self, _path: str) -> dict[str, float]:
        """Time and size of the source, as importlib.abc.SourceLoader has them."""
        return {"mtime": self.seen.st_mtime, "size": self.seen.st_size}

    def get_data(self, path: str) -> bytes:
        """The bytes of a file. Raises OSError."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            parts = [os.read(fd, AT_ONCE)]
            while len(parts[-1]) == AT_ONCE:
                parts.append(os.read(fd, AT_ONCE))
            return b"".join(parts)
        finally:
            os.close(fd)


class Finder:
    """An entry of sys.meta_path (importlib.abc.MetaPathFinder) for the modules of this package."""

    @staticmethod
    def find_spec(
        name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where a module of ours is; None for all others, and for what is not here."""
        package, _, rest = name.partition(".")
        if package != PACKAGE or not rest:
            return None
        place = os.path.join(HERE, *rest.split("."))
        for file, searched in ((f"{place}.py", None), (f"{place}/__init__.py", [place])):
            loader = Loader(name, file)
            try:
                loader.seen = os.stat(file)
            except OSError:
                continue
            return spec_from_file_location(
                name, file, loader=loader, submodule_search_locations=searched
            )
        return None
