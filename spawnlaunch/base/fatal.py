"""Fatal errors: the line that a process prints, and the status with which it ends.

A seccomp profile of a container (seccomp(2)), a sandbox such as gVisor or an old kernel refuses
single system calls: with EPERM, or with ENOSYS. Where that costs a feature, the launch continues
without it; else it ends with one line and EX_OSERR. Only a launch with such an error imports this
module.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from spawnlaunch.base import errors, machine, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType

    Tell = Callable[[int, str], object]

HINTS = {
    **dict.fromkeys(
        (errno.EPERM, errno.ENOSYS),
        "a container's seccomp profile may forbid it: docker run --security-opt seccomp=unconfined",
    ),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "see ulimit -n"),
    **dict.fromkeys(
        (errno.EAGAIN, errno.ENOMEM), "see ulimit -u, and the pids limit of the cgroup"
    ),
}
SEE_WHERE = "set SPAWNLAUNCH_DEBUG=1 to see where"


def end(error: BaseException, where: str = "", who: str = "", tell: Tell | None = None) -> int:
    """Print one line about a fatal error, in place of a traceback, and return the exit status.

    `tell` passes status and words on to the launchers of other nodes.
    """
    line, status = fault(error, where)
    if os.environ.get("SPAWNLAUNCH_DEBUG") and status != errors.WRONG_USE:
        import traceback

        traceback.print_exception(error)
    say.say([f"error: {line}" if status == errors.WRONG_USE else who + line])
    if tell:
        tell(status, line)
    return status


def fault(error: BaseException, where: str = "") -> tuple[str, int]:
    """Return words and exit status.

    A UsageError is the user's, an OSError the system's, any other spawnlaunch's fault.
    """
    if isinstance(error, errors.UsageError):
        return str(error), errors.WRONG_USE
    if isinstance(error, OSError):
        return words(error), os.EX_OSERR
    return (
        f"internal error{where}: {type(error).__name__}: {error}; this is a fault of spawnlaunch, "
        f"{SEE_WHERE}"
    ), os.EX_SOFTWARE


def words(error: OSError) -> str:
    """Return which call the system refuses, why, and what to do; without errno, its own words."""
    if error.errno is None:
        return str(error)
    call, file = _call(error), str(error.filename or "")
    what = f"{error.strerror or error}{call and file and f': {file}'}"
    hint = HINTS.get(error.errno, SEE_WHERE)
    return f"the system refuses {call or file or 'a call'}: {what}; {hint}"


def _call(error: OSError) -> str:
    """The name of the function that raised the error, from the last frame of its traceback."""
    last = error.__traceback__
    while last and last.tb_next:
        last = last.tb_next
    return _called(last.tb_frame.f_code, last.tb_lineno, last.tb_lasti) if last else ""


def _called(code: CodeType, number: int, instruction: int) -> str:
    """The name of the function called at this instruction, by the source file.

    "": the instruction is a `raise`, or the source cannot be read, or it has changed.
    """
    begin = 0
    if hasattr(code, "co_positions"):  # Python 3.11
        number, _, begin, _ = [*code.co_positions()][instruction // 2]
    try:
        line = machine.content(code.co_filename).splitlines()[number - 1][begin:]
    except (OSError, IndexError):
        return ""
    words = line.decode(errors="replace").partition("(")[0].split()
    if not words or words[0] == "raise":
        return ""
    called = words[-1].rpartition(".")[2]
    return called if called in (*code.co_names, *code.co_varnames) else ""
