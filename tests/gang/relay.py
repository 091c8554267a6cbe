"""A way to a port, which keeps what is said on it, and may be closed for a while."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Way:
    """Another port that leads to the first. While it is not open, what is sent is kept."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.said = bytearray()  # to the first port's owner
        self.is_tried = threading.Event()  # somebody has come
        self.is_open = threading.Event()
        self.is_open.set()


@contextmanager
def relay(port: int) -> Iterator[Way]:
    """A way to a port of this machine."""

    def pump(source: socket.socket, target: socket.socket, keep: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if not way.is_open.is_set():
                    way.is_open.wait()
                    with suppress(BlockingIOError):  # all of it at once
                        data += source.recv(65536, socket.MSG_DONTWAIT)
                if keep:
                    way.said.extend(data)
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def serve() -> None:
        with suppress(OSError):
            while True:
                inner, _ = listener.accept()
                way.is_tried.set()
                way.is_open.wait()
                try:
                    outer = socket.create_connection(("127.0.0.1", port))
                except OSError:  # nobody listens yet
                    inner.close()
                    continue
                sockets.extend((inner, outer))
                for arguments in ((inner, outer, True), (outer, inner, False)):
                    threading.Thread(target=pump, args=arguments, daemon=True).start()

    sockets: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        way = Way(listener.getsockname()[1])
        threading.Thread(target=serve, daemon=True).start()
        try:
            yield way
        finally:
            way.is_open.set()
            for sock in sockets:
                sock.close()
