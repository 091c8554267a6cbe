"""Sockets, on loopback and by names."""

import _socket
import errno
import select
from typing import Any

from tests.machine.conformance.programs import noted, program, tried


def listening(m: Any) -> Any:
    listener = m.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.setblocking(False)
    listener.bind(("127.0.0.1", 0))
    listener.listen(10)
    return listener


def ready(m: Any, sock: Any, events: int, wait_ms: int = 2000) -> int:
    """What poll tells of it: 0 where nothing comes in that time."""
    poller = m.poll()
    poller.register(sock.fileno(), events)
    return next((seen for _, seen in poller.poll(wait_ms)), 0)


def connected(m: Any) -> tuple[Any, Any]:
    """Both ends of a connection; the listener is closed."""
    listener = listening(m)
    mine = m.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    mine.setblocking(False)
    mine.connect_ex(listener.getsockname())
    ready(m, listener, select.POLLIN)
    theirs, _ = m.accept(listener)
    theirs.setblocking(False)
    ready(m, mine, select.POLLOUT)
    listener.close()
    return mine, theirs


@program
def a_connection_comes(m: Any) -> None:
    listener = listening(m)
    noted(m, tried(m, m.accept, listener), ready(m, listener, select.POLLIN, 20))
    mine = m.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    mine.setblocking(False)
    noted(m, tried(m, mine.getpeername))
    noted(m, mine.connect_ex(listener.getsockname()) in (0, errno.EINPROGRESS))
    noted(m, ready(m, mine, select.POLLOUT), mine.getsockopt(_socket.SOL_SOCKET, _socket.SO_ERROR))
    noted(m, mine.getpeername() == listener.getsockname(), ready(m, listener, select.POLLIN))
    theirs, address = m.accept(listener)
    noted(m, address == mine.getsockname())
    theirs.setblocking(False)
    noted(m, tried(m, theirs.recv, 10), mine.send(b"hello"), ready(m, theirs, select.POLLIN))
    noted(m, theirs.recv(3), theirs.recv(10))


@program
def nobody_listens(m: Any) -> None:
    listener = listening(m)
    address = listener.getsockname()
    listener.close()
    mine = m.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    mine.setblocking(False)
    code = mine.connect_ex(address)
    if code == errno.EINPROGRESS:
        ready(m, mine, select.POLLOUT)
        code = mine.getsockopt(_socket.SOL_SOCKET, _socket.SO_ERROR)
    noted(m, code == errno.ECONNREFUSED, tried(m, mine.getpeername))


@program
def nobody_listens_at_a_name(m: Any) -> None:
    before = sorted(m.listdir("/dev/fd"))
    noted(m, tried(m, m.connect_local, "\0spawnlaunch-nobody-has-this-name"))
    noted(m, sorted(m.listdir("/dev/fd")) == before)


@program
def one_end_is_closed(m: Any) -> None:
    mine, theirs = connected(m)
    mine.send(b"last")
    mine.close()
    noted(m, ready(m, theirs, select.POLLIN), theirs.recv(100))
    m.sleep(0.05)
    noted(m, theirs.recv(100), ready(m, theirs, select.POLLIN | select.POLLOUT))


@program
def one_end_is_shut_down(m: Any) -> None:
    mine, theirs = connected(m)
    mine.send(b"last")
    mine.shutdown(_socket.SHUT_WR)
    m.sleep(0.05)
    noted(m, (theirs.recv(100), theirs.recv(100)), theirs.send(b"answer"))
    m.sleep(0.05)
    noted(m, mine.recv(100), tried(m, mine.send, b"x"))
    theirs.close()
    m.sleep(0.05)
    noted(m, ready(m, mine, select.POLLIN | select.POLLOUT), mine.recv(100))


@program
def closing_with_something_unread_is_a_reset(m: Any) -> None:
    mine, theirs = connected(m)
    mine.send(b"never read")
    m.sleep(0.05)
    theirs.close()
    m.sleep(0.05)
    noted(m, ready(m, mine, select.POLLIN | select.POLLOUT), tried(m, mine.recv, 100))
    noted(m, tried(m, mine.send, b"x"), tried(m, mine.recv, 100))


@program
def sending_to_what_is_closed(m: Any) -> None:
    mine, theirs = connected(m)
    theirs.close()
    m.sleep(0.05)
    noted(m, tried(m, mine.send, b"once"))
    m.sleep(0.05)
    noted(m, tried(m, mine.send, b"twice"))


@program
def two_listen_at_one_port(m: Any) -> None:
    listener = listening(m)
    other = m.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    noted(m, tried(m, other.bind, listener.getsockname()))
    listener.close()
    noted(m, tried(m, other.bind, listener.getsockname()) if listener.fileno() >= 0 else "closed")


@program
def names_of_local_sockets(m: Any) -> None:
    one = m.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    name = f"\0conformance-{m.getpid()}"
    one.bind(name)
    one.listen(1)
    connection, _, uid = m.connect_local(name)
    connection.close()
    noted(m, uid == m.geteuid())
    other = m.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    noted(m, tried(m, other.bind, name))
    one.close()
    noted(m, tried(m, other.bind, name))
