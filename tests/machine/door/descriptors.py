"""Calls about descriptors and sockets."""

import _socket
import errno
import stat
from types import SimpleNamespace
from typing import Any, NoReturn

from tests.machine.descriptors import Pipe, Regular
from tests.machine.door.calls import Calls
from tests.machine.door.polls import EpollObject, Poll
from tests.machine.errors import refused
from tests.machine.files import Inode
from tests.machine.network import Tcp
from tests.machine.sockets import Name, Socket


class Descriptors(Calls):
    def pipe(self) -> tuple[int, int]:
        process = self.begin("pipe2")
        pipe = Pipe()
        reader = process.put(pipe.reader.held())
        try:
            return reader, process.put(pipe.writer.held())
        except OSError:
            process.shut(reader)
            raise

    def read(self, fd: int, most: int) -> bytes:
        process = self.begin("read")
        return process.at(fd).read(process, most)

    def write(self, fd: int, data: bytes) -> int:
        process = self.begin("write")
        return process.at(fd).write(process, bytes(data))

    def write_now(self, fd: int, data: bytes) -> int:
        """In one step, as no time passes meanwhile."""
        process = self.begin("write")
        what = process.at(fd)
        blocks, what.blocks = what.blocks, False
        try:
            return what.write(process, data)
        finally:
            what.blocks = blocks

    def close(self, fd: int) -> None:
        self.begin("close").shut(fd)

    def dup(self, fd: int) -> int:
        process = self.begin("fcntl")
        return process.put(process.at(fd).held())

    def dup2(self, fd: int, to: int, inheritable: bool = True) -> int:
        process = self.begin("dup3")
        what = process.at(fd)
        if fd != to:
            what.held()
            if to in process.fds:
                process.shut(to)
        process.fds[to] = what, inheritable
        return to

    def set_blocking(self, fd: int, blocks: bool) -> None:
        self.begin("fcntl").at(fd).blocks = blocks

    def get_inheritable(self, fd: int) -> bool:
        process = self.begin("fcntl")
        process.at(fd)
        return process.fds[fd][1]

    def set_inheritable(self, fd: int, inheritable: bool) -> None:
        process = self.begin("fcntl")
        process.fds[fd] = process.at(fd), inheritable

    def isatty(self, fd: int) -> bool:
        return fd in self.begin("ioctl").fds and False

    def get_terminal_size(self, fd: int) -> NoReturn:
        self.begin("ioctl").at(fd)
        raise refused(errno.ENOTTY)

    def size_of(self, pipe: int) -> int:
        what = self.begin("ioctl").at(pipe)
        return int(what.pipe.size)  # type: ignore[attr-defined]

    def poll(self) -> Poll:
        return Poll(self)

    def epoll(self) -> EpollObject:
        return EpollObject(self)

    def fstat(self, fd: int) -> Any:
        what = self.begin("fstat").at(fd)
        if isinstance(what, Regular):
            return what.inode.status()
        return SimpleNamespace(st_mode=what.kind | 0o600, st_ino=id(what), st_dev=0, st_uid=0,
                               st_gid=0, st_size=0, st_mtime=0.0)  # fmt: skip

    def sameopenfile(self, one: int, other: int) -> bool:
        process = self.begin("fstat")
        return process.at(one) is process.at(other)

    def memfd_create(self, name: str) -> int:
        return self.begin("memfd_create").put(Regular(Inode(stat.S_IFREG, 0o600)).held())

    def _inode(self, call: str, fd: int) -> Inode:
        what = self.begin(call).at(fd)
        assert isinstance(what, Regular)
        return what.inode

    def ftruncate(self, fd: int, size: int) -> None:
        inode = self._inode("ftruncate", fd)
        del inode.content[size:]

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        inode = self._inode("pwrite64", fd)
        inode.content[offset : offset + len(data)] = data
        return len(data)

    def pread(self, fd: int, most: int, offset: int) -> bytes:
        inode = self._inode("pread64", fd)
        return bytes(inode.content[offset : offset + most])

    def fchmod(self, fd: int, mode: int) -> None:
        inode = self._inode("fchmod", fd)
        inode.mode = mode

    def fsync(self, fd: int) -> None:
        self.begin("fsync").at(fd)

    def getrlimit(self) -> tuple[int, int]:
        process = self.begin("prlimit64")
        return process.files_most, process.node.files_hard

    def setrlimit(self, limits: tuple[int, int]) -> None:
        self.begin("prlimit64").files_most = limits[0]

    # Sockets

    def socket(self, family: int, kind: int) -> Socket:
        process = self.begin("socket")
        if kind == _socket.SOCK_STREAM and family == _socket.AF_INET:
            return Socket(self, Tcp(process.node), process)
        return Socket(self, Name(process.node), process)

    def connect_local(self, address: str) -> tuple[Socket, int, int]:
        process = self.begin("socket")
        process.free()  # as many as it may have open
        self.begin("connect")
        if address not in process.node.sockets:  # no simulated worker has a thread that listens
            raise refused(errno.ECONNREFUSED)
        return Socket(self, Name(process.node), process), 0, process.uid

    def accept(self, listener: Socket) -> tuple[Socket, Any]:
        process = self.begin("accept4")
        backlog = process.at(listener.fileno()).backlog
        if not backlog:
            raise refused(errno.EAGAIN)
        process.free()  # else the connection stays where it is
        what = backlog.pop(0)
        made = Socket(self, what, process)
        what.release()
        return made, what.remote

    def getaddrinfo(self, name: str, port: int | None, *how: int) -> Any:
        process = self.begin("getaddrinfo")
        family, flags = (*how, 0, 0, 0, 0)[0], (*how, 0, 0, 0, 0)[3]
        network = process.node.network
        is_number = name.replace(".", "").isdigit()
        if not is_number and not flags & _socket.AI_NUMERICHOST:
            takes_s, address = network.answer(process, name)
            self.wait(process, lambda: False, takes_s)
            if name in ("localhost",):
                address = "127.0.0.1"
        else:
            address = name if is_number else None
        if address is None or family == _socket.AF_INET6:
            raise _socket.gaierror(_socket.EAI_NONAME, "Name or service not known")
        return [(_socket.AF_INET, _socket.SOCK_STREAM, 6, "", (address, port or 0))]
