"""Find our own modules with two look-ups each, where Python's finder takes seven.

In task mode every rank imports some forty of them, from a file system that thousands of ranks ask
at the same time. Where each of them is, is known: so the source is looked at once (its time and
size tell whether the compiled file is its own), and the compiled file is read without asking how
long it is. All else is Python's own loader. What is not found here, as in a zip file or without
sources, Python's finder looks for.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib.machinery import SourceFileLoader
from importlib.util import spec_from_file_location

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

PACKAGE = __name__.partition(".")[0]
HERE = os.path.dirname(__file__)
AT_ONCE = 1 << 15  # bytes; for over 128 KiB malloc(3) would map memory anew each time
CHANGED = "the package spawnlaunch was replaced or removed meanwhile; type the command again"


def order() -> None:
    """For a program beside a launch: look for modules in the working directory last.

    With -m it comes first, and a json.py there, or where PYTHONPATH leads, would be taken for
    Python's. So this is called before all else is imported.
    """
    try:
        if sys.path[0] in ("", os.getcwd()):
            sys.path.append(sys.path.pop(0))
    except OSError:
        pass  # it has been deleted, and Python has not put it there
    own_first()


def own_first() -> None:
    """Look for modules in Python's own library before PYTHONPATH."""
    library = os.path.dirname(os.__file__)
    sys.path.sort(key=lambda path: path not in (library, f"{library}/lib-dynload"))


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


def has_changed() -> bool:
    """Whether a module that was imported is gone, or another one by now: no import can be trusted.

    To be asked where something has failed.
    """
    loaders = [getattr(module, "__loader__", None) for module in [*sys.modules.values()]]
    own = [loader for loader in loaders if isinstance(loader, Loader)]
    try:
        os.stat(__file__)
        return any(_told(os.stat(loader.path)) != _told(loader.seen) for loader in own)
    except OSError:
        return True


def _told(found: os.stat_result) -> tuple[int, int]:
    return found.st_mtime_ns, found.st_size


def tell_change(error: Exception | None = None) -> int:
    """Say it, without any import, if the package has changed: the exit status; else 0.

    The same where an import has ended with this error and it is the system's.
    """
    words = f"cannot read a module of its own: {error}" if isinstance(error, OSError) else ""
    words = CHANGED if has_changed() else words
    if not words:
        return 0
    with suppress(OSError):
        os.write(2, f"{PACKAGE}: {words}\n".encode(errors="backslashreplace"))
    return os.EX_OSERR
