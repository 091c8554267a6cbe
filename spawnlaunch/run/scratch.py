"""The directory for files that need not outlive the launch: the workers' error files.

Whoever starts the workers makes it and removes it; if that is a guard that was killed, the launcher
removes it.
"""

from __future__ import annotations

import os

from spawnlaunch.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

FOR_LISTING = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def path(environ: Mapping[str, str]) -> str:
    """A name that no other launch on this machine has, nor in a container that shares /tmp."""
    name = f"spawnlaunch-{os.getpid()}-{os.urandom(4).hex()}"
    return os.path.join(environ.get("TMPDIR") or "/tmp", name)


def make(directory: str) -> None:
    """Make it, new and for ourselves alone. Raises UsageError where nothing can be written."""
    try:
        os.mkdir(directory, mode=0o700)  # refuses whatever is there, a link too (mkdir(2))
    except OSError as error:
        raise UsageError(
            f"cannot make the directory {directory}: {error.strerror}; set TMPDIR to a place that "
            "can be written"
        ) from None


def remove(directory: str) -> None:
    """Remove the directory, if it is there, with whatever the workers left in it.

    Only ours: where others may rename what is in TMPDIR, the name may lead elsewhere by now.
    """
    try:
        fd = os.open(directory, FOR_LISTING)
    except OSError:
        return  # gone already, or no directory
    try:
        if os.fstat(fd).st_uid == os.geteuid():
            _empty(fd)
            os.rmdir(directory)
    except OSError:
        pass  # somebody has made it unremovable
    finally:
        os.close(fd)


def _empty(top: int) -> None:
    """Remove what is in an open directory. Raises OSError.

    Directories may be nested deeper than a path or a recursion can be: one is open at a time.
    """
    fd = os.dup(top)
    try:
        levels = [_unlink_files(fd)]  # from the top down to `fd`: directories to be removed
        while levels[-1] or len(levels) > 1:
            below = levels[-1][-1] if levels[-1] else None
            beside = os.open(below or "..", FOR_LISTING, dir_fd=fd)
            os.close(fd)
            fd = beside
            if below:
                levels.append(_unlink_files(fd))
            else:
                levels.pop()
                os.rmdir(levels[-1].pop(), dir_fd=fd)
    finally:
        os.close(fd)


def _unlink_files(fd: int) -> list[str]:
    """Remove what is no directory from an open one; the names of the directories in it."""
    with os.scandir(fd) as entries:
        found = list(entries)
    for entry in found:
        if not entry.is_dir(follow_symlinks=False):
            os.unlink(entry.name, dir_fd=fd)
    return [entry.name for entry in found if entry.is_dir(follow_symlinks=False)]
