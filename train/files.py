"""Files and directories that a run makes, with the rules for other users.

A directory that is made here is for its user alone; for one that exists already the user has chosen
the readers, and files have the umask's mode. In a directory that all users may write to, as /tmp,
any user may have made a link under any name, to redirect what is written. There a link is followed
only if it belongs to this user, to root, or to the directory's owner, as a kernel does with
fs.protected_symlinks (its Documentation/admin-guide/sysctl/fs.rst).
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any, TextIO, cast

MOST_LINKS = 40  # in one path: MAXSYMLINKS of the kernel (path_resolution(7))
FULL = (errno.ENOSPC, errno.EDQUOT)


def refuse_links_of_others(path: str | Path) -> None:
    """Raises PermissionError for a link in the path that another user may have put there."""
    here, names, links = "/", _names(os.path.abspath(path)), 0
    while names:
        name = names.pop()
        if name == "..":
            here = os.path.dirname(here)
            continue
        below = os.path.join(here, name)
        try:
            target = os.readlink(below)
            owner, above = os.lstat(below).st_uid, os.stat(here)
        except OSError:  # no link, or not there
            here = below
            continue
        links += 1
        if links > MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), below)
        if above.st_mode & stat.S_IWOTH and owner not in (os.geteuid(), above.st_uid, 0):
            raise PermissionError(
                errno.EACCES, f"{below} is a link of another user, in a directory for all", below
            )
        here = "/" if target.startswith("/") else here
        names += _names(target)


def _names(path: str) -> list[str]:
    """The names of a path, the last one first."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def make_directory(path: Path, exist_ok: bool = True) -> None:
    """Make a directory, and those above it that are missing, for this user alone."""
    refuse_links_of_others(path)
    missing = [one for one in (path, *path.parents) if not one.exists()]
    for one in reversed(missing[1:]):
        one.mkdir(mode=0o700, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=exist_ok)


def open_text(path: Path, mode: str) -> TextIO:
    """Open a file to write UTF-8. Raises PermissionError for a link of another user."""
    refuse_links_of_others(path)
    file: Any = path.open(mode, encoding="utf-8")
    return cast(TextIO, file)


def write_text(path: Path, text: str) -> None:
    """Write a text to a file, in place of its contents."""
    with open_text(path, "w") as file:
        file.write(text)


def advice(error: OSError) -> str:
    """The remedy for an error of writing: to make room, if the disk or the quota is full."""
    return "make room" if error.errno in FULL else "look at the file system"
