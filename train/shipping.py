"""How samples get into other processes: what is large is mapped there, and not copied.

The samples are written once, as a pickle and the bytes of their arrays behind it, to a file in
memory that has no name. Every loader process maps it copy-on-write: the pages are there once, and
what one process changes it alone sees. An array that is mapped from a file is mapped from it again.
"""

from __future__ import annotations

import io
import mmap
import multiprocessing
import os
import pickle
import tempfile
import threading
from multiprocessing import reduction
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
import torch

from .errors import shared_refusal
from .find import task_class

ALIGNED = 64  # bytes, as the allocators of torch and NumPy have it at least


class Shipped:
    """Something of a task's that is pickled for another process, which may not know the task.

    A child of multiprocessing can import what has an importable name. A class in a file that was
    loaded by its path has none, so the child loads that file before it unpickles the rest. What
    cannot be pickled, as a class that a function defines, is made there again by the ``recipe``.
    """

    def __init__(self, task: str, content: Any, recipe: Any) -> None:
        self.task = task
        self.content = content
        self.recipe = recipe
        self.written: _Written | None = None

    def __getstate__(self) -> tuple[str, Any, list[range]]:
        self.written = self.written or self._write()
        return self.task, reduction.DupFd(self.written.file.fileno()), self.written.extents

    def __setstate__(self, state: tuple[str, Any, list[range]]) -> None:
        self.task, duplicate, extents = state
        task_class(self.task)
        self.content, self.recipe = _read(duplicate.detach(), extents)
        if self.content is None:
            self.content = self.recipe.make()

    def _write(self) -> _Written:
        errors = (pickle.PicklingError, AttributeError, TypeError)
        try:
            return _write((self.content, None))
        except errors:
            try:
                return _write((None, self.recipe))
            except errors as error:
                raise shared_refusal(
                    f"--task {self.task}: neither its samples nor the task can be sent to loader "
                    f"processes: {error}; type --loader-workers 0",
                ) from error


def end_with_rank(_worker: int) -> None:
    """End this loader process when its rank has ended, however that came about.

    It is no child of the rank but of the fork server, which in turn stays as long as it has
    children. So a thread waits on a pipe that the rank alone holds the other end of.
    """
    rank = multiprocessing.parent_process()
    assert rank is not None

    def watch() -> None:
        rank.join()
        os._exit(1)  # whatever the other threads are doing; nobody is left to read what they say

    threading.Thread(target=watch, name="watch the rank", daemon=True).start()


class _Written(NamedTuple):
    """A file of which ``extents`` are a pickle and the buffers that it refers to, in order."""

    file: BinaryIO
    extents: list[range]


def _write(content: Any) -> _Written:
    pickled, buffers = io.BytesIO(), list[pickle.PickleBuffer]()
    _Pickler(pickled, protocol=5, buffer_callback=buffers.append).dump(content)
    file, extents = _unnamed(), []
    for piece in (pickled.getbuffer(), *(buffer.raw() for buffer in buffers)):
        begin = -(-file.tell() // ALIGNED) * ALIGNED
        file.seek(begin)
        file.write(piece)
        extents.append(range(begin, begin + piece.nbytes))
    file.flush()
    return _Written(file, extents)


def _unnamed() -> BinaryIO:
    if hasattr(os, "memfd_create"):  # Linux
        return os.fdopen(os.memfd_create("samples"), "w+b")
    return cast(BinaryIO, tempfile.TemporaryFile())


def _read(descriptor: int, extents: list[range]) -> Any:
    """What was written; its pages are shared until this process writes to them."""
    mapped = memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY))
    os.close(descriptor)
    pickled, *buffers = (mapped[one.start : one.stop] for one in extents)
    return pickle.loads(pickled, buffers=buffers)


class _Pickler(pickle.Pickler):
    """Leaves the memory of tensors and arrays out, once however many are views of it."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.storage.TypedStorage):  # made anew for every view
            return _typed, (value._untyped_storage, value.dtype)
        if isinstance(value, torch.UntypedStorage) and value.device.type == "cpu":
            data: Any = torch.empty(0, dtype=torch.uint8).set_(value).numpy()
            return _storage, (pickle.PickleBuffer(data),)
        if isinstance(value, np.memmap) and (found := _Mapping.of(value)) is not None:
            return _map, (found, value.dtype, value.shape, value.strides)
        return NotImplemented


def _typed(storage: torch.UntypedStorage, dtype: torch.dtype) -> torch.storage.TypedStorage:
    return torch.storage.TypedStorage(  # type: ignore[no-untyped-call]
        wrap_storage=storage, dtype=dtype, _internal=True
    )


def _storage(data: Any) -> torch.UntypedStorage:
    if not len(memoryview(data)):
        return torch.UntypedStorage(0)  # type: ignore[no-untyped-call]
    return torch.frombuffer(data, dtype=torch.uint8).untyped_storage()


class _Mapping(NamedTuple):
    """Bytes of a file that are mapped, and where among them an array begins."""

    file: str
    mode: str
    offset: int
    size: int
    begin: int

    @classmethod
    def of(cls, array: np.memmap[Any, Any]) -> _Mapping | None:
        """Where an array is in its file; None if the file may hold something else by now."""
        root: Any = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        file = getattr(root, "filename", None)
        if file is None or root.mode == "c" or not Path(file).exists():
            return None
        begin = _address(array) - _address(root)
        mode = "r" if root.mode == "r" else "r+"
        return cls(str(file), mode, root.offset, root.nbytes, begin)


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def _map(found: _Mapping, dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    data = np.memmap(found.file, np.uint8, cast(Any, found.mode), found.offset, (found.size,))
    return np.ndarray.__new__(np.memmap, shape, dtype, cast(Any, data), found.begin, strides)
