"""Leave a small file where the user named a place: whole, or not at all.

| what is there              | what happens                                                      |
|----------------------------|-------------------------------------------------------------------|
| nothing, or a regular file | another file takes its place at once (rename(2)): with the mode   |
|                            | and, where that is allowed, the owner of the old one              |
| a symbolic link            | the same where it leads; the link stays. Another user's, in a     |
|                            | directory that everybody may write to, is refused: links.py       |
| our own stdout or stderr   | the text is added to it                                           |
| a device, a FIFO           | the text is written to it, as far as somebody reads: PATIENCE_S   |

What goes wrong leaves nothing behind.
"""

import errno
import os
import select
import stat
import time
from contextlib import suppress

from spawnlaunch.run import links

PATIENCE_S = 5.0  # for the reader of a FIFO: to come, and then to take something
LOOK_AGAIN_S = 0.02


def write(path: str, text: str) -> None:
    """Write the file. Raises OSError."""
    data = text.encode(errors="backslashreplace")
    target = links.resolved(path)
    try:
        found = os.stat(path)
    except FileNotFoundError:
        found = None
    if found is None:
        _replace(target, None, data)
    elif stat.S_ISREG(found.st_mode) and _leads_to(target, found) and not _is_ours(found):
        _replace(target, found, data)
    else:
        _write_into(path, data)


def refusal(path: str) -> str | None:
    """Why there can be no such file, in words; None: there can, as far as one sees before."""
    try:
        target = links.resolved(path)
    except OSError as error:
        return f"{error.strerror}; name another"
    if os.path.isdir(path):
        return "is a directory; name a file"
    if os.path.exists(path) and not os.path.isfile(path):
        return None if os.access(path, os.W_OK) else "cannot be written to; name another"
    if os.access(os.path.dirname(target), os.W_OK):
        return None
    return "no directory that can be written to is there; make it, or name another"


def _leads_to(target: str, found: os.stat_result) -> bool:
    """Whether the name is that of the file: /dev/fd/3 may lead to one that has none."""
    try:
        return os.path.samestat(os.stat(target), found)
    except OSError:
        return False


def _is_ours(found: os.stat_result) -> bool:
    """Whether our stdout or stderr goes there: it would go on in the file that is replaced."""
    return any(os.path.samestat(os.fstat(fd), found) for fd in (1, 2))


def _replace(target: str, found: os.stat_result | None, data: bytes) -> None:
    """Whoever may write to the directory cannot have the file ready: its name is random."""
    unfinished = os.path.join(os.path.dirname(target), f".spawnlaunch-{os.urandom(8).hex()}.tmp")
    fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    try:
        try:
            if found:
                _take_after(fd, found)
            while data:
                data = data[os.write(fd, data) :]
            os.fsync(fd)  # a disk may be found full only now
        finally:
            os.close(fd)
        os.replace(unfinished, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(unfinished)
        raise


def _take_after(fd: int, found: os.stat_result) -> None:
    """Owner and mode of the file that was there, before anything is in the new one."""
    with suppress(PermissionError):
        os.fchown(fd, found.st_uid, found.st_gid)
    os.fchmod(fd, found.st_mode & 0o777)


def _write_into(path: str, data: bytes) -> None:
    fd = _open_for(path, time.monotonic() + PATIENCE_S)
    try:
        poller = select.poll()
        poller.register(fd, select.POLLOUT)
        while data:
            if not poller.poll(PATIENCE_S * 1000):
                raise OSError(errno.ETIMEDOUT, "nobody reads it to the end")
            data = data[os.write(fd, data[: select.PIPE_BUF]) :]
    finally:
        os.close(fd)


def _open_for(path: str, until: float) -> int:
    """Open what is there; a FIFO has no end to write to before somebody reads it (fifo(7))."""
    while True:
        try:
            return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError as error:
            if error.errno != errno.ENXIO or not stat.S_ISFIFO(os.stat(path).st_mode):
                raise
        if time.monotonic() > until:
            raise OSError(errno.ENXIO, "nobody reads it")
        time.sleep(LOOK_AGAIN_S)
