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
TO_ADD = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY


def check_links(path: str) -> None:
    """Raise OSError if another user has put a link on the path, where everybody may write.

    A file or directory that is not there ends the search.
    """
    before, rest, links = ".", path, 0
    while rest and links < MOST_LINKS:  # of more, the kernel follows none
        if rest.startswith("/"):
            before = "/"
        name, _, rest = rest.lstrip("/").partition("/")
        rest, here = rest.lstrip("/"), os.path.join(before, name)
        try:
            status = machine.lstat(here)
            if not stat.S_ISLNK(status.st_mode):
                before = here
                continue
            directory, target = machine.stat(before), machine.readlink(here)
        except OSError:
            return
        trusted = (0, machine.geteuid(), directory.st_uid)
        if directory.st_mode & stat.S_IWOTH and status.st_uid not in trusted:
            raise OSError(
                errno.EACCES,
                f"{here} is a link of another user's (uid {status.st_uid}), where everybody may "
                "write",
            )
        rest, links = os.path.join(target, rest), links + 1


def make_directory(path: str) -> None:
    """Make a directory, and those above it that are not there, for this user alone.

    Raises OSError.
    """
    check_links(path)
    missing, above = [], path
    while above and not machine.exists(above):
        missing.append(above)
        above = os.path.dirname(above)
    for each in reversed(missing):
        try:
            machine.mkdir(each, 0o700)
        except FileExistsError:  # another process may have been quicker
            if not machine.isdir(each):
                raise
    if missing:
        check_links(path)


def opened(path: str, flags: int) -> int:
    """Open a file to write to, and make it if it is not there. Raises OSError.

    A link in its place is followed if it is ours or root's.
    """
    check_links(path)
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
    return opened(route.file or "", TO_ADD)


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


def is_owned_by_user(directory: str) -> bool:
    """Whether the scratch directory is there, and of our own user.

    Where others may rename entries of TMPDIR, the name may by now lead elsewhere.
    """
    try:
        return machine.lstat(directory).st_uid == machine.geteuid()
    except FileNotFoundError:
        return False


def remove_scratch(directory: str) -> None:
    """Remove the scratch directory, if it is there, with all that the workers left in it."""
    try:
        if is_owned_by_user(directory):
            try:
                machine.rmdir(directory)
            except OSError:  # most are empty
                machine.remove_tree(directory)
    except (OSError, RecursionError) as error:
        words = getattr(error, "strerror", None) or str(error)
        say.say([f"cannot remove {directory}: {words}; run rm -r {directory}"])


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

    | what is there                   | what happens                                             |
    |---------------------------------|----------------------------------------------------------|
    | nothing, or a regular file      | another file of the same mode takes its place (rename(2))|
    | a link, or a file that cannot   | the text takes the place of the content                  |
    | be renamed                      |                                                          |
    | our own stdout or stderr        | the text is added to it                                  |
    | a device, a FIFO                | the text is written to it, as far as a process reads it  |

    An error leaves no file.
    """
    data = text.encode(errors="backslashreplace")
    check_links(path)
    try:
        status = machine.stat(path)
    except FileNotFoundError:
        status = None
    # Then output would go on in the file that was replaced.
    is_output = status and any(os.path.samestat(machine.fstat(fd), status) for fd in (1, 2))
    is_file = status is None or stat.S_ISREG(status.st_mode)
    if is_file and not is_output and not machine.islink(path):
        try:
            _replace(path, status, data)
            return
        except OSError as error:
            if error.errno not in STAYS:
                raise
    fd = opened(path, TO_ADD if is_output else TO_ADD | os.O_TRUNC)
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


def _replace(path: str, status: os.stat_result | None, data: bytes) -> None:
    """Write a file beside the old one under an unforeseeable random name, and rename it."""
    unfinished = os.path.join(os.path.dirname(path), f".spawnlaunch-{machine.urandom(8).hex()}.tmp")
    fd = machine.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    try:
        try:
            if status:
                machine.fchmod(fd, status.st_mode & 0o777)
            while data:
                data = data[machine.write(fd, data) :]
            try:
                machine.fsync(fd)  # a disk may be found full only now
            except OSError as error:
                if error.errno not in REFUSED:
                    raise
        finally:
            machine.close(fd)
        machine.replace(unfinished, path)
    except BaseException:
        with suppress(OSError):
            machine.unlink(unfinished)
        raise


def refusal(path: str) -> str | None:
    """The reason why the file cannot be written; None: as far as can be seen, it can."""
    try:
        check_links(path)
    except OSError as error:
        return f"{error.strerror}; name another"
    if machine.isdir(path):
        return "is a directory; name a file"
    if machine.exists(path) and not machine.isfile(path):
        return None if machine.access(path, os.W_OK) else "cannot be written to; name another"
    if machine.access(os.path.dirname(path), os.W_OK):
        return None
    return "no directory that can be written to is there; make it, or name another"
