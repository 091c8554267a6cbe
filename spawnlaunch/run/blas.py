"""The thread counts of libraries that are loaded already, and read no environment any more."""

from __future__ import annotations

import sys

from spawnlaunch.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

PREFIXES = ("scipy_openblas", "openblas")  # the first in numpy's and scipy's wheels
SUFFIXES = ("64_", "64", "_", "")


class OpenBlas(NamedTuple):
    """A copy of OpenBLAS; numpy and scipy bring one each."""

    library: Any  # ctypes.CDLL
    name: str  # of its functions, with {} for the verb

    @property
    def threads(self) -> int:
        """How many threads it computes with."""
        return int(getattr(self.library, self.name.format("get"))())

    def set_threads(self, count: int) -> None:
        """Compute with so many from now on."""
        getattr(self.library, self.name.format("set"))(count)


def copies() -> Iterator[OpenBlas]:
    """Every copy that this process has mapped."""
    import ctypes

    try:
        with open("/proc/self/maps") as file:
            paths = {line.split()[-1] for line in file if "openblas" in line and ".so" in line}
    except OSError:
        return
    for path in paths:
        library = ctypes.CDLL(path)
        for prefix in PREFIXES:
            for suffix in SUFFIXES:
                name = f"{prefix}_{{}}_num_threads{suffix}"
                if hasattr(library, name.format("get")):
                    yield OpenBlas(library, name)
                    break


def set_threads(count: int) -> None:
    """What OMP_NUM_THREADS would have said when the libraries were loaded."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(count)
    for library in copies():
        library.set_threads(count)
