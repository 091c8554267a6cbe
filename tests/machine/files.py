"""The files of a simulated node: a tree in memory, of directories and files.

What a call does with them is the door's; /proc is made up by `procfs`.
"""

import errno
import stat
from typing import NamedTuple

from tests.machine.errors import refused


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
    """A directory (entries) or a file (content)."""

    _count = 0

    def __init__(self, kind: int, mode: int, uid: int = 0) -> None:
        Inode._count += 1
        self.number, self.kind, self.mode, self.uid = Inode._count, kind, mode, uid
        self.entries: dict[str, Inode] = {}
        self.content = bytearray()
        self.changed = 0.0

    def status(self) -> Status:
        size = len(self.content)
        return Status(self.kind | self.mode, self.number, 1, self.uid, 0, size, self.changed)


class Files:
    def __init__(self) -> None:
        self.root = Inode(stat.S_IFDIR, 0o755)
        self.room: list[int] | None = None  # bytes that the disk still has
        for name in ("tmp", "dev", "proc", "work"):
            self.root.entries[name] = Inode(stat.S_IFDIR, 0o1777 if name == "tmp" else 0o755)

    def find(self, path: str) -> Inode:
        """Raises OSError where there is nothing."""
        directory, name = self.parent(path)
        found = directory.entries.get(name) if name else directory
        if found is None:
            raise refused(errno.ENOENT, path)
        return found

    def parent(self, path: str) -> tuple[Inode, str]:
        """The directory of the last name, and that name."""
        names = [name for name in path.split("/") if name not in ("", ".")]
        here = self.root
        for name in names[:-1]:
            below = here.entries.get(name)
            if below is None:
                raise refused(errno.ENOENT, path)
            if below.kind != stat.S_IFDIR:
                raise refused(errno.ENOTDIR, path)
            here = below
        return here, names[-1] if names else ""

    def make(self, path: str, kind: int, mode: int, uid: int) -> Inode:
        directory, name = self.parent(path)
        if not name or name in directory.entries:
            raise refused(errno.EEXIST, path)
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
            raise refused(errno.ENOENT, path)
        is_directory = found.kind == stat.S_IFDIR
        if is_directory != directory:
            raise refused(errno.EISDIR if is_directory else errno.ENOTDIR, path)
        if found.entries:
            raise refused(errno.ENOTEMPTY, path)
        del parent.entries[name]

    def rename(self, old: str, new: str) -> None:
        parent, name = self.parent(old)
        if name not in parent.entries:
            raise refused(errno.ENOENT, old)
        to, as_name = self.parent(new)
        to.entries[as_name] = parent.entries.pop(name)
