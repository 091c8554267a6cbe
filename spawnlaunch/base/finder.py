"""Find spawnlaunch's own modules with two look-ups each, where Python's finder takes seven.

In task mode every rank imports some forty of them, from a file system that thousands of ranks use
at the same time. The path of each module is known: so this finder calls stat once on the source
(its time and size show whether the compiled file belongs to it), and reads the compiled file
without asking for its size. Everything else is Python's own loader. Modules that are not found
here, as in a zip file or without sources, are left to Python's finder.
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
AT_ONCE = 1 << 15  # bytes per read; above 128 KiB malloc(3) would map new memory each time


class Loader(SourceFileLoader):
    """Python's loader of a source file, with the stat result from when it was found."""

    stat_result: os.stat_result

    def path_stats(self, _path: str) -> dict[str, float]:
        """Return time and size of the source, as importlib.abc.SourceLoader does."""
        return {"mtime": self.stat_result.st_mtime, "size": self.stat_result.st_size}

    def get_data(self, path: str) -> bytes:
        """Return the bytes of a file. Raises OSError."""
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
        """Return the spec of a module of spawnlaunch; None for others and for missing files."""
        package, _, rest = name.partition(".")
        if package != PACKAGE or not rest:
            return None
        place = os.path.join(HERE, *rest.split("."))
        for file, searched in ((f"{place}.py", None), (f"{place}/__init__.py", [place])):
            loader = Loader(name, file)
            try:
                loader.stat_result = os.stat(file)
            except OSError:
                continue
            return spec_from_file_location(
                name, file, loader=loader, submodule_search_locations=searched
            )
        return None
