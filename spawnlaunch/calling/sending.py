"""The files by which a function goes to the ranks and results come back, in a directory per call.

    call        where modules are found, and the function with its arguments
    refused     why the launcher did not start, in one line
    ended.json  how every rank ended: the file of --result
    said        with quiet=True, the launcher's own messages
    0.3         the outcome of rank 3 in the first attempt, by worker.py
    0.3.unfinished  words: it ended with 0 and left no outcome

With cloudpickle objects of a notebook or a script (its `__main__`), objects within another
function, and lambdas go by value. Without it all go by name, and ranks import the script as the
processes of multiprocessing do: code below its guard, `if __name__ == "__main__":`, is not run.
"""

from __future__ import annotations

import io
import linecache
import os
import pickle
import sys
from collections.abc import Callable
from multiprocessing import spawn
from types import CodeType
from typing import Any, NamedTuple

from spawnlaunch.base import errors

try:
    import cloudpickle
except ImportError:
    cloudpickle = None

CALL, REFUSED, ENDED, SAID = "call", "refused", "ended.json", "said"
UNFINISHED = ".unfinished"
GUARD = 'if __name__ == "__main__":'
CLOUDPICKLE = "or run pip install cloudpickle, with which no rank imports the script"

importing: list[str] = []  # in a rank: the script, while it is imported


class Call(NamedTuple):
    """The call that every rank gets.

    `data` can be read after the other fields have been applied.
    """

    path: list[str]  # sys.path of the caller
    sources: dict[str, tuple[Any, ...]]  # entries of linecache for code that is in no file
    script: dict[str, Any]  # the script that multiprocessing.spawn.prepare imports, if any
    data: bytes  # the function and its arguments


class Returned(NamedTuple):
    """The outcome of a rank in which the function has returned."""

    value: Any


class Raised(NamedTuple):
    """The outcome of a rank in which the function has raised an exception."""

    words: str  # ValueError: bad
    error: bytes | None  # the exception, pickled; None where that is not possible
    traceback: str  # with all causes


def send(function: Callable[..., Any], args: tuple[Any, ...], directory: str) -> None:
    """Write the function for the ranks. Raises UsageError where it cannot be pickled."""
    if importing:
        raise errors.UsageError(
            f"a rank imports {importing[0]}, which calls launch; write that call below {GUARD} "
            f"{CLOUDPICKLE}"
        )
    if not callable(function):
        raise errors.UsageError(
            f"{function!r} cannot be called; use launch(function, *args), not function(...)"
        )
    try:
        data = dumps((function, args))
        script = {} if cloudpickle or b"__main__" not in data else _script()
    except Exception as error:
        named = getattr(function, "__qualname__", repr(function))
        remedy = "" if cloudpickle else "run pip install cloudpickle, or put it into a module; "
        raise errors.UsageError(
            f"{named} and its arguments cannot be sent to the workers: {error}; {remedy}make "
            "what cannot be pickled (files, locks, connections) in the function"
        ) from error
    put(Call(list(sys.path), _sources(function), script, data), os.path.join(directory, CALL))


def receive(directory: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return the function and its arguments, in a rank.

    Modules are found where the caller finds them.
    """
    call = get(os.path.join(directory, CALL))
    assert isinstance(call, Call)
    sys.path[:] = call.path
    linecache.cache.update(call.sources)
    importing.extend(call.script.get("sys_argv", ())[:1])
    spawn.prepare(call.script)
    importing.clear()
    try:
        function, args = pickle.loads(call.data)
    except AttributeError as error:
        if not call.script:
            raise
        raise errors.UsageError(f"{error}; write it above {GUARD} {CLOUDPICKLE}") from None
    return function, args


def put(value: object, path: str) -> None:
    """Write a file, whole or not at all. Raises whatever pickling raises."""
    data, unfinished = dumps(value), f"{path}.part"
    with open(unfinished, "wb") as file:
        file.write(data)
    os.replace(unfinished, path)


def get(path: str) -> object:
    """Return the value that `put` wrote. Raises whatever unpickling raises."""
    with open(path, "rb") as file:
        return pickle.load(file)


def dumps(value: object) -> bytes:
    """Pickle by cloudpickle, where it is installed. Raises whatever pickling raises.

    Code keeps the name of its file, which cloudpickle leaves out since 3.1.3: a traceback of a rank
    shows lines of the script or cell.
    """
    if cloudpickle is None:
        return pickle.dumps(value)
    reducers = cloudpickle.Pickler.dispatch_table

    def reduced(code: CodeType) -> tuple[Any, ...]:
        make, args, *_ = reducers[CodeType](code)
        return _code, (code.co_filename, make, args)

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        dispatch_table = {**reducers, CodeType: reduced}  # noqa: RUF012

    Pickler(file := io.BytesIO()).dump(value)
    return file.getvalue()


def _code(filename: str, make: Callable[..., CodeType], args: tuple[Any, ...]) -> CodeType:
    """Make code and give it the name of its file, in the process that unpickles it."""
    return make(*args).replace(co_filename=filename)


def _script() -> dict[str, Any]:
    """The script that ranks import.

    Raises LookupError where no script has the contents of `__main__`, as in a notebook.
    """
    main = sys.modules["__main__"]
    if not os.path.isfile(path := getattr(main, "__file__", None) or ""):
        raise LookupError("it is part of a notebook, and in no file")
    spec = getattr(main, "__spec__", None)
    module = {"init_main_from_name": spec.name} if spec else {}
    return {"sys_argv": sys.argv, "init_main_from_path": os.path.abspath(path), **module}


def _sources(function: Callable[..., Any]) -> dict[str, tuple[Any, ...]]:
    """The source lines of a cell: tracebacks show them, and no file has them."""
    code = getattr(function, "__code__", None)
    entry = linecache.cache.get(code.co_filename) if code else None
    if not code or not entry or len(entry) != 4 or os.path.exists(code.co_filename):
        return {}
    return {code.co_filename: (entry[0], None, *entry[2:])}
