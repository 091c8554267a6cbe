"""An exception on its way from a rank: itself, its notes, its causes, and what a group holds.

pickle makes an exception anew by calling its class with its `args`, which fails, or makes another
one, where the constructor takes something else; it leaves out __cause__ and __context__; and what
cannot be pickled (a lock in an attribute) loses all of it. So each exception goes by itself, by
pickle where that comes back the same, else as its class, arguments and attributes.
"""

from __future__ import annotations

import builtins
import pickle
import sys
from importlib import import_module
from typing import Any

from spawnlaunch.calling import shipping

GROUPS = getattr(builtins, "BaseExceptionGroup", ())  # Python 3.11
MOST = 50  # exceptions that hang on one


def sent(error: BaseException, seen: set[int] | None = None) -> shipping.Sent:
    """What is left of an exception for the caller: each cause once, of many those nearest."""
    seen = set() if seen is None else seen
    seen.add(id(error))

    def below(one: BaseException | None) -> shipping.Sent | None:
        new = one is not None and id(one) not in seen and len(seen) < MOST
        return sent(one, seen) if one is not None and new else None

    members = error.exceptions if GROUPS and isinstance(error, GROUPS) else ()
    data = None if members else _pickled_whole(error)
    args = error.args[:1] if members else error.args
    can = {name: one for name, one in vars(error).items() if _pickled(one) is not None}
    return shipping.Sent(
        words=words(error),
        data=data,
        kind=_kind(type(error)),
        args=shipping.pickler().dumps(tuple(arg if _pickled(arg) else repr(arg) for arg in args)),
        attributes=shipping.pickler().dumps(can),
        members=tuple(sent(one, seen) for one in members),
        cause=below(error.__cause__),
        context=below(error.__context__),
        hides_context=error.__suppress_context__,
    )


def arrived(it: shipping.Sent) -> BaseException:
    """The exception; one of Exception with the same words where it cannot be made here."""
    error = _made(it)
    error.__cause__ = arrived(it.cause) if it.cause else None
    error.__context__ = arrived(it.context) if it.context else error.__cause__
    error.__suppress_context__ = it.hides_context
    return error


def words(error: BaseException) -> str:
    """Its kind and what it says, as the last line of a traceback, but for notes."""
    kind = type(error)
    name, text = kind.__qualname__, _text(error)
    if kind.__module__ not in ("builtins", "__main__"):
        name = f"{kind.__module__}.{name}"
    return f"{name}: {text}" if text else name


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # it is the user's code
        return "<cannot be shown>"


def _made(it: shipping.Sent) -> BaseException:
    try:
        if it.data is not None:
            error = pickle.loads(it.data)
        else:
            kind, args = _class(it.kind), pickle.loads(it.args)
            more = ([arrived(one) for one in it.members],) if it.members else ()
            error = kind.__new__(kind, *args, *more)
            error.args = (*args, *more)
            vars(error).update(pickle.loads(it.attributes))
    except Exception:  # whatever a class does, or a module that is not here
        return Exception(it.words)
    return error if isinstance(error, BaseException) else Exception(it.words)


def _pickled(value: object) -> bytes | None:
    try:
        data: bytes = shipping.pickler().dumps(value)
        pickle.loads(data)
    except Exception:
        return None
    return data


def _pickled_whole(error: BaseException) -> bytes | None:
    """None where it would not come back as it is."""
    kind = type(error)
    if _is_at(kind, sys.modules.get(kind.__module__)) and (data := _pickled(error)):
        alike = [(type(one), _text(one), vars(one).keys()) for one in (pickle.loads(data), error)]
        if alike[0] == alike[1]:
            return data
    return None


def _kind(kind: type) -> tuple[str, str] | bytes | None:
    """Where the class is found: pytest's Skipped says that it is a builtin, and is none."""
    named = [kind.__module__, *sys.modules]
    for name in named:
        if _is_at(kind, sys.modules.get(name)) and name != "__main__":
            return name, kind.__qualname__
    return _pickled(kind)


def _is_at(kind: type, module: object) -> bool:
    found: Any = module
    for name in kind.__qualname__.split("."):
        found = getattr(found, "__dict__", {}).get(name)
    return found is kind


def _class(kind: tuple[str, str] | bytes | None) -> Any:
    if not isinstance(kind, tuple):
        return pickle.loads(kind or b"")
    found: Any = import_module(kind[0])
    for name in kind[1].split("."):
        found = getattr(found, name)
    return found
