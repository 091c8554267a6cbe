"""Remove a directory of ours with all that workers have left in it, however deep it is."""

from __future__ import annotations

import errno
import os
import stat

from spawnlaunch.base import machine

FOR_LISTING = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


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
