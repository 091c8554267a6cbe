"""What comes to the port of a hub of the run "7", and is no launcher of ours."""

import socket
from collections.abc import Callable

from spawnlaunch.multinode.wire import Wire, secret_of

SECRET = secret_of(None, "7")


def read_all(sock: socket.socket) -> bytes:
    """To the end; raises ConnectionError where it is cut short."""
    read = b""
    while data := sock.recv(4096):
        read += data
    return read


def say(*words: bytes) -> Callable[[socket.socket], bytes]:
    """A peer that says these whatever is answered."""

    def peer(sock: socket.socket) -> bytes:
        for each in words:
            sock.sendall(each)
        return read_all(sock)

    return peer


def prove(sock: socket.socket, *lines: bytes) -> bytes:
    """Prove to the hub that this end knows the secret; the result says these lines as that end."""
    wire = Wire(SECRET, "7", is_hub=False)
    while not wire.is_ready:
        sock.sendall(wire.take())
        data = sock.recv(4096)
        if not data:
            raise ConnectionError("the hub has closed it")
        wire.feed(data)
    said = (wire.mac(False, n, line) + b" " + line + b"\n" for n, line in enumerate(lines))
    return wire.take() + b"".join(said)
