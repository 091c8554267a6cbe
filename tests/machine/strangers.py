"""Strangers who come to where launchers meet: silent ones, and one with a strange name."""

from __future__ import annotations

import _socket
import select
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from spawnlaunch.base import machine
from spawnlaunch.multinode import messages, wire
from tests.machine.network import Tcp
from tests.machine.node import Node
from tests.machine.process import Process
from tests.machine.scenario import HUB, PORT, RUN

if TYPE_CHECKING:
    from tests.machine.scenario import Fault

SEATS = 80  # more than a hub has for those who have not said hello
AGAIN_S = 0.5
STAY_S, TIMES = 5.0, 100


def come(hub: Node, fault: Fault) -> None:
    """To the hub's machine, from another one."""
    kernel = hub.kernel
    elsewhere = Node(kernel, "elsewhere")
    if fault.what == "digits":
        elsewhere.start(_says_hello)
        return
    until, held = kernel.now + fault.for_s, list[Tcp]()

    def hold() -> None:
        """As many connections as that, whatever the hub does with them."""
        for gone in [each for each in held if each.failure or each.is_reset or each.has_end]:
            held.remove(gone)
            gone.release()
        for _ in range(SEATS - len(held)):
            made = Tcp(elsewhere)
            made.held()
            made.connect(hub.network, (hub.address, PORT))
            held.append(made)
        if kernel.now < until and any(p.comm != "init" for p in hub.processes.values()):
            kernel.at(kernel.now + AGAIN_S, hold)
            return
        for each in held:
            each.release()

    hold()


def _says_hello(process: Process) -> None:
    """Speak as a launcher of this run does, which anybody may where there is no token."""
    with suppress(OSError, wire.Foreign):
        sock, poller = _connected()
        ours = wire.Wire(wire.secret_of(None, RUN), RUN, is_hub=False)
        sock.send(ours.take())
        poller.register(sock.fileno(), select.POLLIN)
        while not ours.is_ready and poller.poll(STAY_S * 1000):
            ours.feed(sock.recv(4096))
        hello = messages.Hello("9" * 5000, "a stranger", 1, port=PORT)
        sock.send(ours.take() + ours.encode(hello))
        machine.sleep(STAY_S)


def _connected() -> tuple[Any, Any]:
    """A connection to the hub, once it is there, and a poller for what it says. Raises OSError."""
    for _ in range(TIMES):
        sock = machine.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        sock.connect_ex((HUB, PORT))
        poller = machine.poll()
        poller.register(sock.fileno(), select.POLLOUT)
        if poller.poll(AGAIN_S * 1000) and not sock.getsockopt(
            _socket.SOL_SOCKET, _socket.SO_ERROR
        ):
            return sock, poller
        sock.close()
        machine.sleep(AGAIN_S / 10)
    raise OSError("nobody listens")
