"""Calls about files and directories."""

import errno
import os
import stat
from types import SimpleNamespace
from typing import Any

from tests.machine import procfs
from tests.machine.descriptors import Null, Regular
from tests.machine.door.calls import Calls
from tests.machine.errors import refused
from tests.machine.process import Process


class Files(Calls):
    def _at(self, process: Process, path: str, dir_fd: int | None = None) -> str:
        top = process.cwd if dir_fd is None else process.at(dir_fd).path
        return os.path.normpath(os.path.join(top, path))

    def open(self, path: str, flags: int, mode: int = 0o777, dir_fd: int | None = None) -> int:
        process = self.begin("openat")
        path = self._at(process, path, dir_fd)
        if path == os.devnull:
            return process.put(Null().held())
        if path.startswith("/dev/fd/"):
            what = process.at(int(path.rpartition("/")[2]))
            return process.put(what.reopened(flags).held())
        if path.startswith("/proc"):
            content = Regular.of(procfs.read(process, path))
            return process.put(content.held())
        files = process.node.files
        try:
            inode = files.find(path)
            if flags & os.O_EXCL:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        except FileNotFoundError:
            if not flags & os.O_CREAT:
                raise
            inode = files.make(path, stat.S_IFREG, mode & ~process.umask, process.uid)
        if inode.kind == stat.S_IFDIR and flags & (os.O_WRONLY | os.O_RDWR):
            raise refused(errno.EISDIR, path)
        if flags & os.O_TRUNC:
            inode.content.clear()
        opened = Regular(inode, bool(flags & os.O_APPEND), files.room)
        opened.path = path
        return process.put(opened.held())

    def stat(self, path: str, dir_fd: int | None = None) -> Any:
        process = self.begin("stat")
        if path.startswith("/proc/"):
            procfs.read(process, path)
            return SimpleNamespace(st_mode=stat.S_IFREG | 0o444, st_uid=0, st_mtime=0.0)
        return process.node.files.find(self._at(process, path, dir_fd)).status()

    lstat = stat  # there are no links

    def readlink(self, path: str) -> str:
        process = self.begin("readlink")
        if path == "/proc/self":
            return str(process.pid)
        process.node.files.find(self._at(process, path))
        raise refused(errno.EINVAL, path)

    def exists(self, path: str) -> bool:
        return self._kind(path) != 0

    def islink(self, path: str) -> bool:
        self.begin("lstat")
        return False

    def isdir(self, path: str) -> bool:
        return self._kind(path) == stat.S_IFDIR

    def isfile(self, path: str) -> bool:
        return self._kind(path) == stat.S_IFREG

    def _kind(self, path: str) -> int:
        """What is there; 0: nothing that can be seen."""
        try:
            return stat.S_IFMT(self.stat(path).st_mode)
        except OSError:
            return 0

    def access(self, path: str, how: int) -> bool:
        process = self.begin("access")
        try:
            process.node.files.find(self._at(process, path))
        except OSError:
            return False
        return True

    def listdir(self, path: str | int) -> list[str]:
        process = self.begin("getdents64")
        if isinstance(path, int):
            path = process.at(path).path
        if path == "/dev/fd":  # with the one by which it is listed
            own = process.put(Null().held())
            names = [str(fd) for fd in process.fds]
            process.shut(own)
            return names
        if path.startswith("/proc"):
            return procfs.names(process, path)
        return list(process.node.files.find(self._at(process, path)).entries)

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        process = self.begin("mkdir")
        files = process.node.files
        files.make(self._at(process, path), stat.S_IFDIR, mode & ~process.umask, process.uid)

    def rmdir(self, path: str, dir_fd: int | None = None) -> None:
        process = self.begin("rmdir")
        process.node.files.unlink(self._at(process, path, dir_fd), directory=True)

    def unlink(self, path: str, dir_fd: int | None = None) -> None:
        process = self.begin("unlink")
        process.node.files.unlink(self._at(process, path, dir_fd))

    def remove_tree(self, path: str) -> None:
        for name in self.listdir(path):
            below = f"{path}/{name}"
            (self.remove_tree if self.isdir(below) else self.unlink)(below)
        self.rmdir(path)

    def replace(self, old: str, new: str) -> None:
        process = self.begin("rename")
        process.node.files.rename(self._at(process, old), self._at(process, new))
