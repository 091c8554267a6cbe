"""All files and directories that spawnlaunch makes or removes, with the rules about other users.

The output of workers is private: a directory that we make is for its user alone, as torchrun's is.
Where a directory is there already, the user has chosen its readers; files have the umask's mode.

In a directory that all users may write to, as /tmp, any user may have put a link under any name. A
process that follows it writes where that user wants, with rights that the user does not have. So we
follow a link there as a kernel does with fs.protected_symlinks = 1, whatever ours has (its
Documentation/admin-guide/sysctl/fs.rst): if the link belongs to us or to the owner of the
directory. Beyond that we follow root's links, and distrust a directory without the sticky bit too.
"""

from __future__ import annotations

import errno
import os
import select
import stat
from collections.abc import Mapping
from contextlib import suppress

from spawnlaunch.base import errors, events, machine, reading, say
from spawnlaunch.workers import environment, launches

MOST_LINKS = 40  # on one way: MAXSYMLINKS of the kernel (path_resolution(7))
PATIENCE_S = 5.0  # for the reader of a pipe to take something
ELSEWHERE = "name another directory with --log-dir"
REFUSED = (errno.EPERM, errno.ENOSYS)  # by a sandbox
STAYS = (errno.EBUSY, *REFUSED)  # a file that is mounted by itself, as of a container (rename(2))
FOR_LISTING = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
TO_ADD = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY


def resolved(path: str) -> str:
    """Return the path without links; a missing or unreadable part stays as it is.

    Raises OSError for the first link that is not to be followed.
    """
    here, names, links = "", _names(path), 0
    if not path.startswith("/"):
        names += _names(machine.getcwd())
    while names:
        name = names.pop()
        if name == "..":
            here = os.path.dirname(here).rstrip("/")
            continue
        below = f"{here}/{name}"
        target = _target(below, here or "/")
        if target is None:
            here = below
            continue
        links += 1
        if links > MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        here = "" if target.startswith("/") else here
        names += _names(target)
    return here or "/"


def _names(path: str) -> list[str]:
    """The names on the path, the last one first."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _target(path: str, directory: str) -> str | None:
    """The path to which a link leads; None: there is no link.

    Raises OSError if the link must not be followed.
    """
    try:
        status = machine.lstat(path)
        if not stat.S_ISLNK(status.st_mode):
            return None
        directory_status, target = machine.stat(directory), machine.readlink(path)
    except OSError:
        return None
    trusted = (0, machine.geteuid(), directory_status.st_uid)
    if directory_status.st_mode & stat.S_IWOTH and status.st_uid not in trusted:
        raise OSError(
            errno.EACCES,
            f"{path} is a link of another user's (uid {status.st_uid}), where everybody may write",
        )
    return target


def make_directory(path: str) -> None:
    """Make a directory, and those above it that are not there, for this user alone.

    Raises OSError.
    """
    target, missing = resolved(path), []
    while not machine.isdir(target):
        missing.append(target)
        target = os.path.dirname(target)
    for each in reversed(missing):
        try:
            machine.mkdir(each, 0o700)
        except FileExistsError:
            if not machine.isdir(each):
                kind = errno.EEXIST if each == target else errno.ENOTDIR
                raise OSError(kind, os.strerror(kind)) from None
    resolved(path)  # another process may have been quicker


def opened(path: str, flags: int) -> int:
    """Open a file to write to, and make it if it is not there. Raises OSError.

    Where other users may write to the directory, a link of theirs is not followed.
    """
    flags |= os.O_CREAT | os.O_CLOEXEC
    try:
        return machine.open(path, flags | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
    owner = machine.lstat(path).st_uid
    if owner not in (0, machine.geteuid()):
        raise OSError(errno.ELOOP, f"it is a link of another user's (uid {owner})")
    return machine.open(path, flags, 0o666)


def open_log(route: launches.Route) -> int:
    """Open the file of a worker's stream, to add to it. Raises OSError.

    The call does not wait for a reader of a FIFO, nor for a device.
    """
    fd = opened(route.file or "", TO_ADD)
    if stat.S_ISFIFO(machine.fstat(fd).st_mode):
        machine.close(fd)
        raise OSError(errno.ESPIPE, "it is a FIFO, which keeps nothing")
    return fd


# The scratch directory


def scratch_path(environ: Mapping[str, str]) -> str:
    """A name that no other launch on this machine has, nor in a container that shares /tmp."""
    name = f"spawnlaunch-{machine.getpid()}-{machine.urandom(4).hex()}"
    return os.path.join(reading.absolute(environ.get("TMPDIR") or "/tmp", "TMPDIR"), name)


def make_scratch(directory: str) -> None:
    """Make the scratch directory, new and for this user alone.

    It is for files that need not outlive the launch: the workers' error files. The process that
    starts the workers makes it and removes it; if that is a guard that was killed, the launcher
    removes it.
    Raises UsageError where nothing can be written there.
    """
    try:
        machine.mkdir(directory, mode=0o700)  # refuses any existing entry, a link too (mkdir(2))
    except OSError as error:
        raise errors.UsageError(
            f"cannot make the directory {directory}: {error.strerror}; set TMPDIR to a place that "
            "can be written"
        ) from None


def remove_scratch(directory: str) -> None:
    """Remove the scratch directory, if it is there, with all that the workers left in it.

    Only a directory of our own user: where others may rename entries of TMPDIR, the name may by now
    lead elsewhere.
    """
    try:
        if machine.lstat(directory).st_uid == machine.geteuid():
            machine.rmdir(directory)
    except FileNotFoundError:
        return
    except OSError as error:  # most are empty
        remove_tree(directory)
        if machine.lexists(directory):
            say.say([f"cannot remove {directory}: {error.strerror}; run rm -r {directory}"])


def remove_tree(directory: str) -> None:
    """Remove a directory of ours with all that is in it, unless the system refuses."""
    try:
        fd = machine.open(directory, FOR_LISTING)
    except OSError:
        return
    try:
        if machine.fstat(fd).st_uid == machine.geteuid():
            _empty(fd)
            machine.rmdir(f"../{os.path.basename(directory)}", dir_fd=fd)
    except OSError:
        pass
    finally:
        machine.close(fd)


def _empty(top: int) -> None:
    """Remove the entries of an open directory. Raises OSError.

    Directories may be nested deeper than a path or a recursion can be. So the entries of each
    directory in `top` are removed or moved up into `top`, again and again, until no directory has
    any.
    """
    while full := [name for name in machine.listdir(top) if not _is_removed(name, top)]:
        for name in full:
            _move_up(name, top)


def _move_up(name: str, top: int) -> None:
    """Move the directories in a directory of `top` into `top`, and remove the files."""
    fd = machine.open(name, FOR_LISTING, dir_fd=top)
    try:
        for each in machine.listdir(fd):
            if not _is_removed(each, fd):
                machine.rename(each, machine.urandom(8).hex(), src_dir_fd=fd, dst_dir_fd=top)
    finally:
        machine.close(fd)


def _is_removed(name: str, fd: int) -> bool:
    """Remove an entry of an open directory; False: it is a directory that has entries."""
    try:
        if stat.S_ISDIR(machine.lstat(name, dir_fd=fd).st_mode):
            machine.rmdir(name, dir_fd=fd)
        else:
            machine.unlink(name, dir_fd=fd)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # rmdir(2): it may be either
            raise
        return False
    return True


# The directories and files of the ranks are made before any worker is started: so an error about
# one of them is printed once and costs nothing.


def prepare_files(
    rank: int, routes: launches.Routes, error_file: str | None, scratch: str | None
) -> None:
    """Make directories and files of one worker, and remove an old error file.

    Raises UsageError where that cannot be done.
    """
    for directory, elsewhere in _directories(routes, error_file, scratch).items():
        try:
            make_directory(directory)
        except OSError as error:
            raise errors.UsageError(
                f"cannot make the directory {directory}: {error.strerror}; {elsewhere}"
            ) from None
    for route in routes:
        try:
            if route.file:
                machine.close(open_log(route))
        except OSError as error:
            raise errors.UsageError(
                f"cannot write to {route.file}: {error.strerror}; remove it, or {ELSEWHERE}"
            ) from None
    try:
        if error_file:
            machine.unlink(error_file)
    except FileNotFoundError:
        pass
    except OSError as error:  # it may be a link of another user, which the worker would follow
        raise errors.UsageError(
            f"cannot remove {error_file}, where rank {rank} would report a failure: "
            f"{error.strerror}; remove it yourself, or {ELSEWHERE}"
        ) from None


def _directories(
    routes: launches.Routes, error_file: str | None, scratch: str | None
) -> dict[str, str]:
    """The directories to be made, each with the advice for the case that it cannot be."""
    files = [route.file for route in routes if route.file != os.devnull]
    advice = {os.path.dirname(path): ELSEWHERE for path in files if path}
    if error_file and os.path.dirname(error_file) != scratch:
        elsewhere = ELSEWHERE if scratch else f"name another file in {environment.ERROR_FILE}"
        advice.setdefault(os.path.dirname(error_file), elsewhere)
    return advice


def write(path: str, text: str) -> None:
    """Write a small file where the user named a place: whole, or not at all. Raises OSError.

    | what is there              | what happens                                                  |
    |----------------------------|---------------------------------------------------------------|
    | nothing, or a regular file | another file takes its place at once (rename(2)): with the    |
    |                            | mode and, where that is allowed, the owner of the old one     |
    | one that cannot be renamed | the text takes the place of its content                       |
    | a symbolic link            | the same where it leads; the link stays                       |
    | our own stdout or stderr   | the text is added to it                                       |
    | a device, a FIFO           | the text is written to it, as far as a process reads it       |

    An error leaves no file.
    """
    data = text.encode(errors="backslashreplace")
    target = resolved(path)
    try:
        status = machine.stat(path)
    except FileNotFoundError:
        status = None
    if status is None:
        _replace(target, None, data)
    elif stat.S_ISREG(status.st_mode) and _leads_to(target, status) and not _is_our_stream(status):
        try:
            _replace(target, status, data)
        except OSError as error:
            if error.errno not in STAYS:
                raise
            _write_into(path, data, TO_ADD | os.O_TRUNC)
    else:
        _write_into(path, data, TO_ADD)


def refusal(path: str) -> str | None:
    """The reason why the file cannot be written; None: as far as can be seen, it can."""
    try:
        target = resolved(path)
    except OSError as error:
        return f"{error.strerror}; name another"
    if machine.isdir(path):
        return "is a directory; name a file"
    if machine.exists(path) and not machine.isfile(path):
        return None if machine.access(path, os.W_OK) else "cannot be written to; name another"
    if machine.access(os.path.dirname(target), os.W_OK):
        return None
    return "no directory that can be written to is there; make it, or name another"


def _leads_to(target: str, status: os.stat_result) -> bool:
    """Whether the path leads to the file: /dev/fd/3 may lead to a file without a name."""
    try:
        return os.path.samestat(machine.stat(target), status)
    except OSError:
        return False


def _is_our_stream(status: os.stat_result) -> bool:
    """Whether our stdout or stderr goes to the file: output would go on in the replaced one."""
    return any(os.path.samestat(machine.fstat(fd), status) for fd in (1, 2))


def _replace(target: str, status: os.stat_result | None, data: bytes) -> None:
    """Write a file beside the old one under an unforeseeable random name, and rename it."""
    unfinished = os.path.join(
        os.path.dirname(target), f".spawnlaunch-{machine.urandom(8).hex()}.tmp"
    )
    fd = machine.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    try:
        try:
            _fill(fd, status, data)
        finally:
            machine.close(fd)
        machine.replace(unfinished, target)
    except BaseException:
        with suppress(OSError):
            machine.unlink(unfinished)
        raise


def _fill(fd: int, status: os.stat_result | None, data: bytes) -> None:
    """Write the data to a new file, after giving it owner and mode of the old one."""
    if status:
        with suppress(PermissionError):
            machine.fchown(fd, status.st_uid, status.st_gid)
        machine.fchmod(fd, status.st_mode & 0o777)
    while data:
        data = data[machine.write(fd, data) :]
    try:
        machine.fsync(fd)  # a disk may be found full only now
    except OSError as error:
        if error.errno not in REFUSED:
            raise


def _write_into(path: str, data: bytes, flags: int) -> None:
    try:
        fd = machine.open(path, flags)
    except OSError as error:
        if error.errno == errno.ENXIO:  # of a FIFO (fifo(7))
            raise OSError(errno.ENXIO, "no process reads it") from None
        raise
    try:
        poller = machine.poll()
        poller.register(fd, select.POLLOUT)
        while data:
            if not events.patient_poll(poller, PATIENCE_S):
                raise OSError(errno.ETIMEDOUT, "no process reads it to the end")
            with suppress(BlockingIOError):  # another one was quicker
                data = data[machine.write(fd, data[: select.PIPE_BUF]) :]
    finally:
        machine.close(fd)
