"""The files of a simulated node: a tree in memory, of directories, files and symbolic links.

What a call does with them is the door's; /proc is made up by `procfs`.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import NamedTuple

MOST_LINKS = 40


class Status(NamedTuple):
    """As os.stat_result, as far as it is looked at."""

    st_mode: int
    st_ino: int
    st_dev: int
    st_uid: int
    st_gid: int
    st_size: int
    st_mtime: float


class Inode:
    """A directory (entries), a file (content) or a link (target)."""

    _count = 0

    def __init__(self, kind: int, mode: int, uid: int = 0) -> None:
        Inode._count += 1
        self.number, self.kind, self.mode, self.uid = Inode._count, kind, mode, uid
        self.entries: dict[str, Inode] = {}
        self.content = bytearray()
        self.target = ""
        self.changed = 0.0

    def status(self) -> Status:
        size = len(self.content)
        return Status(self.kind | self.mode, self.number, 1, self.uid, 0, size, self.changed)


def error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


class Files:
    def __init__(self) -> None:
        self.root = Inode(stat.S_IFDIR, 0o755)
        self.room: list[int] | None = None  # bytes that the disk still has
        for name in ("tmp", "dev", "proc", "work"):
            self.root.entries[name] = Inode(stat.S_IFDIR, 0o1777 if name == "tmp" else 0o755)

    def find(self, path: str, follow: bool = True) -> Inode:
        """Raises OSError where there is nothing."""
        directory, name = self.parent(path)
        if not name:
            return directory
        found = directory.entries.get(name)
        if found is None:
            raise error(errno.ENOENT, path)
        if follow and found.kind == stat.S_IFLNK:
            return self.find(os.path.join(os.path.dirname(path), found.target))
        return found

    def parent(self, path: str, links: int = 0) -> tuple[Inode, str]:
        """The directory of the last name, and that name."""
        if links > MOST_LINKS:
            raise error(errno.ELOOP, path)
        names = [name for name in path.split("/") if name not in ("", ".")]
        here, way = self.root, [self.root]
        for i, name in enumerate(names[:-1]):
            if name == "..":
                way = way[:-1] or [self.root]
                here = way[-1]
                continue
            below = here.entries.get(name)
            if below is None:
                raise error(errno.ENOENT, path)
            if below.kind == stat.S_IFLNK:
                before = "/".join(names[:i])
                target = os.path.join("/" + before, below.target)
                return self.parent("/".join([target, *names[i + 1 :]]), links + 1)
            if below.kind != stat.S_IFDIR:
                raise error(errno.ENOTDIR, path)
            here = below
            way.append(here)
        return here, names[-1] if names else ""

    def make(self, path: str, kind: int, mode: int, uid: int) -> Inode:
        directory, name = self.parent(path)
        if not name or name in directory.entries:
            raise error(errno.EEXIST, path)
        made = directory.entries[name] = Inode(kind, mode, uid)
        return made

    def write(self, path: str, content: bytes) -> None:
        """Put a file there, with the directories above it."""
        names = path.strip("/").split("/")
        here = self.root
        for name in names[:-1]:
            here = here.entries.setdefault(name, Inode(stat.S_IFDIR, 0o755))
        file = here.entries.setdefault(names[-1], Inode(stat.S_IFREG, 0o644))
        file.content[:] = content

    def unlink(self, path: str, directory: bool = False) -> None:
        parent, name = self.parent(path)
        found = parent.entries.get(name)
        if found is None:
            raise error(errno.ENOENT, path)
        is_directory = found.kind == stat.S_IFDIR
        if is_directory != directory:
            raise error(errno.EISDIR if is_directory else errno.ENOTDIR, path)
        if found.entries:
            raise error(errno.ENOTEMPTY, path)
        del parent.entries[name]

    def rename(self, old: str, new: str) -> None:
        parent, name = self.parent(old)
        if name not in parent.entries:
            raise error(errno.ENOENT, old)
        to, as_name = self.parent(new)
        to.entries[as_name] = parent.entries.pop(name)
