"""Symbolic links that another user may have put in our way.

A directory that everybody may write to, as /tmp, may have a link of anybody's under any name. Who
follows it writes where somebody else wants it, with rights that the other has not. So we follow a
link there as a kernel does whose fs.protected_symlinks is 1, whatever ours has (its
Documentation/admin-guide/sysctl/fs.rst): if it is ours, or the owner's of the directory. Beyond
that we follow root's, and distrust a directory without the sticky bit alike.
"""

import errno
import os
import stat

MOST = 40  # links on one way: MAXSYMLINKS of the kernel (path_resolution(7))


def resolved(path: str) -> str:
    """The path without links; what is not there, or cannot be seen, stands as it is.

    Raises OSError for the first link that is not to be followed.
    """
    here, names, links = "", _names(path), 0
    if not path.startswith("/"):
        names += _names(os.getcwd())
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
        if links > MOST:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        here = "" if target.startswith("/") else here
        names += _names(target)
    return here or "/"


def _names(path: str) -> list[str]:
    """Those on the way, the last one first."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _target(path: str, directory: str) -> str | None:
    """Where a link leads; None: there is none. Raises OSError if it is not to be followed."""
    try:
        found = os.lstat(path)
        if not stat.S_ISLNK(found.st_mode):
            return None
        around, target = os.stat(directory), os.readlink(path)
    except OSError:
        return None
    if not _is_trusted(found, around, os.geteuid()):
        raise OSError(
            errno.EACCES,
            f"{path} is a link of another user's (uid {found.st_uid}), where everybody may write",
        )
    return target


def _is_trusted(link: os.stat_result, directory: os.stat_result, ours: int) -> bool:
    return not directory.st_mode & stat.S_IWOTH or link.st_uid in (0, ours, directory.st_uid)
