"""A way to a port, which may be closed for a while."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

Taken = queue.SimpleQueue[bytes]  # what was sent on a way


class Way:
    """Another port that leads to the first. While it is not open, what is sent is kept."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.is_tried = threading.Event()  # somebody has come
        self.is_open = threading.Event()
        self.is_open.set()


def _take(source: socket.socket, taken: Taken) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            taken.put(data)
    taken.put(b"")


def _bring(way: Way, taken: Taken, target: socket.socket) -> None:
    with suppress(OSError):
        while True:
            data = taken.get()
            way.is_open.wait()
            if not data:
                target.shutdown(socket.SHUT_WR)
                return
            target.sendall(data)


@contextmanager
def relay(port: int) -> Iterator[Way]:
    """A way to a port of this machine."""

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
                for source, target in ((inner, outer), (outer, inner)):
                    taken: Taken = queue.SimpleQueue()
                    there = (way, taken, target)
                    for work, words in (_take, (source, taken)), (_bring, there):
                        threading.Thread(target=work, args=words, daemon=True).start()

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
