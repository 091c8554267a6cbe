"""Functions of the C library that Python has no name for.

`_ctypes` is the part of `ctypes` that is written in C. It is imported in half a millisecond,
`ctypes` in three.
"""

from __future__ import annotations

try:
    from _ctypes import (
        FUNCFLAG_CDECL,
        FUNCFLAG_USE_ERRNO,
        CFuncPtr,
        _SimpleCData,
        dlopen,
        dlsym,
        get_errno,
    )

    _library = dlopen(None, 0)
    IS_THERE = True
except (ImportError, OSError):  # a Python without libffi
    IS_THERE = False

if IS_THERE:

    class _Int(_SimpleCData):  # type: ignore[type-arg]
        _type_ = "i"

    class _Long(_SimpleCData):  # type: ignore[type-arg]
        _type_ = "l"

    class _Function(CFuncPtr):
        _flags_ = FUNCFLAG_CDECL | FUNCFLAG_USE_ERRNO
        _restype_ = _Int


def call(name: str, *arguments: int | bytes) -> int:
    """Call a function whose result is an int: the result, or -n where it was -1 with errno n.

    Numbers are passed as long, which a variadic function reads correctly: of a shorter one the
    upper half of the register would be whatever it was. `bytes` are passed as their address.
    To be called only where IS_THERE.
    """
    function = _Function(dlsym(_library, name))
    result = function(*(each if isinstance(each, bytes) else _Long(each) for each in arguments))
    return -get_errno() if result == -1 else int(result)
