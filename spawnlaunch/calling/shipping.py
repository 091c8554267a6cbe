"""A function on its way to the ranks, and what comes back: files in a directory of the call's own.

    call        where modules are found, the source of cells, and the function with its arguments
    page        what --explain says, where that was asked for
    refused     why the launcher did not start, in one line
    ended.json  how every rank ended: the file of --result
    said        with quiet=True, what the launcher would have said
    0.3         what became of rank 3 in the first attempt, by worker.py
    0.3.unfinished  words: it ended with 0 and left nothing

Functions go by value where cloudpickle is installed and their module cannot be imported by name:
those of a notebook, of a script (its `__main__`, which is therefore not run again in the ranks, and
needs no guard), lambdas and closures. All others go by name, as pickle does it. The same holds for
what they refer to: the function of a functools.partial, the class of an argument.
"""

from __future__ import annotations

import io
import linecache
import os
import pickle
import sys
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from spawnlaunch import errors

if TYPE_CHECKING:
    from collections.abc import Callable

CALL, PAGE, REFUSED, ENDED, SAID = "call", "page", "refused", "ended.json", "said"
UNFINISHED = ".unfinished"
NAMED = (type, FunctionType)  # pickle takes them by their names
RETURN = "return numbers, text, tensors, or records of them"


class Call(NamedTuple):
    """What every rank is given; `data` can be read when `path` has been set."""

    path: list[str]  # sys.path of the caller
    sources: dict[str, tuple[Any, ...]]  # entries of linecache, of what is in no file
    data: bytes  # the function and its arguments


class Returned(NamedTuple):
    """What became of a rank whose function returned."""

    value: Any


class Sent(NamedTuple):
    """An exception as a rank leaves it."""

    words: str  # ValueError: bad
    data: bytes | None  # pickled by itself; None: it is to be made of its parts
    kind: tuple[str, str] | bytes | None  # its class, by module and name or by value; None: neither
    args: bytes  # that can be pickled, as `attributes`
    attributes: bytes
    members: tuple[Sent, ...]  # of a group
    cause: Sent | None
    context: Sent | None
    hides_context: bool


class Raised(NamedTuple):
    """What became of a rank whose function raised."""

    error: Sent
    traceback: str


def pickler() -> ModuleType:
    """The module that pickles: cloudpickle, where it is installed."""
    try:
        import cloudpickle
    except ImportError:
        return pickle
    else:
        found: ModuleType = cloudpickle
        return found


def send(function: Callable[..., Any], args: tuple[Any, ...], directory: str) -> None:
    """Leave the function for the ranks. Raises UsageError where it cannot be."""
    if not callable(function):
        raise errors.UsageError(
            f"{function!r} cannot be called; type launch(function, *args), not function(...)"
        )
    call = Call(list(sys.path), _sources(function), _pickled(function, args))
    put(call, os.path.join(directory, CALL))


def receive(directory: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """In a rank: the function and its arguments, and modules found where the caller finds them."""
    call = get(os.path.join(directory, CALL))
    assert isinstance(call, Call)
    sys.path[:] = call.path
    linecache.cache.update(call.sources)
    function, args = pickle.loads(call.data)
    return function, args


def put(value: object, path: str) -> None:
    """Write a file, whole or not at all. Raises whatever pickling raises."""
    unfinished = f"{path}.part"
    with open(unfinished, "wb") as file:
        pickler().dump(value, file)
    os.replace(unfinished, path)


def get(path: str) -> object:
    """What `put` has left. Raises whatever unpickling raises."""
    with open(path, "rb") as file:
        return pickle.load(file)


def _pickled(function: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    file, by_value = io.BytesIO(), pickler()
    registered: list[ModuleType] = []
    kind = _ByName if by_value is pickle else _by_value(by_value, registered)
    try:
        kind(file).dump((function, args))
    except errors.UsageError:
        raise
    except Exception as error:
        raise errors.UsageError(
            f"{_named(function)} and its arguments cannot be sent to the workers: {error}; make "
            "what cannot be pickled (files, locks, connections) in the function"
        ) from error
    finally:
        for module in registered:
            by_value.unregister_pickle_by_value(module)
    return file.getvalue()


class _ByName(pickle.Pickler):
    """Refuses what the ranks cannot import, before anything is started."""

    def reducer_override(self, value: object) -> Any:
        if isinstance(value, NAMED) and (_strange_module(value) or "<" in value.__qualname__):
            raise errors.UsageError(
                f"{value.__qualname__} cannot be imported by name, as it is part of a notebook, a "
                "script or another function; type pip install cloudpickle, or put it into a module"
            )
        return NotImplemented


def _by_value(by_value: ModuleType, registered: list[ModuleType]) -> type[pickle.Pickler]:
    """cloudpickle's, which here takes by value also what is in modules that ranks cannot import.

    These are registered with it, and put into the list. Code keeps the name of its file, which
    cloudpickle leaves out since 3.1.3: a traceback of a rank shows lines of the script or cell.
    """
    reducers = by_value.Pickler.dispatch_table

    def reduced(code: CodeType) -> tuple[Any, ...]:
        make, args, *_ = reducers[CodeType](code)
        return _code, (code.co_filename, make, args)

    class Pickler(by_value.Pickler):  # type: ignore[misc, name-defined]
        dispatch_table = {**reducers, CodeType: reduced}  # noqa: RUF012

        def reducer_override(self, value: object) -> Any:
            strange = _strange_module(value) if isinstance(value, NAMED) else None
            if strange and strange.__name__ != "__main__" and strange not in registered:
                by_value.register_pickle_by_value(strange)
                registered.append(strange)
            return super().reducer_override(value)

    return Pickler


def _code(filename: str, make: Callable[..., CodeType], args: tuple[Any, ...]) -> CodeType:
    return make(*args).replace(co_filename=filename)


def _named(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or repr(function)


def _strange_module(value: object) -> ModuleType | None:
    """The module of a function or class, where `import` in another process does not find it."""
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    return module if module and not _is_importable(module) else None


def _is_importable(module: ModuleType) -> bool:
    """Whether `import` in another process, with our sys.path, finds the same module."""
    if module.__name__ == "__main__":
        return False
    parent = sys.modules.get(module.__name__.rpartition(".")[0])
    path = getattr(parent, "__path__", None)
    finders = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]
    return any(finder.find_spec(module.__name__, path) for finder in finders)


def _sources(function: Callable[..., Any]) -> dict[str, tuple[Any, ...]]:
    """The lines of a cell: tracebacks show them, and no file has them."""
    code = getattr(function, "__code__", None)
    entry = linecache.cache.get(code.co_filename) if code else None
    if not code or not entry or len(entry) != 4 or os.path.exists(code.co_filename):
        return {}
    return {code.co_filename: (entry[0], None, *entry[2:])}
