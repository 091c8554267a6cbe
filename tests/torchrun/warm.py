"""torchrun in a fork of a process that has imported torch, which takes seconds, once for all."""

import fcntl
import importlib
import multiprocessing
import multiprocessing.forkserver
import os
import signal
import sys
import tempfile
import termios
from collections.abc import Callable
from typing import NamedTuple

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "torch.distributed.elastic.agent.server.local_elastic_agent",
        "torch.distributed.elastic.rendezvous.registry",
        "torch.distributed.run",
        "torch.distributed.launch",
        __name__,
    ]
)

# What may hinder a launcher from its start.
HINDRANCES: dict[str, Callable[[], object]] = {
    "": lambda: None,
    "stdin is closed": lambda: os.close(0),
    "umask 077": lambda: os.umask(0o077),
    "nohup": lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
}


class Order(NamedTuple):
    """A process that is to be started: a module of Python, and all that it has from its parent."""

    module: str
    words: list[str]
    environ: dict[str, str]
    cwd: str
    streams: tuple[str, str, str]
    hindrance: str = ""


def open_streams(order: Order) -> list[int]:
    """stdin, stdout and stderr of the process."""
    appending = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    flags = (os.O_RDONLY, appending, appending)
    return [
        os.open(name, flag | os.O_NOCTTY, 0o644)
        for name, flag in zip(order.streams, flags, strict=True)
    ]


def settle(order: Order) -> None:
    """In the new process, which leads a session: take stdin as its terminal, and hinder it."""
    if os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    HINDRANCES[order.hindrance]()


def become(order: Order) -> None:
    """In the fork: run the module's main as a process that was started with it."""
    os.setsid()
    os.chdir(order.cwd)
    os.environ.clear()
    os.environ.update(order.environ)
    tempfile.tempdir = None  # that of the new environment is still to be looked up
    for fd, opened in enumerate(open_streams(order)):
        os.dup2(opened, fd)
        os.close(opened)
    settle(order)
    sys.argv = [order.module, *order.words]
    importlib.import_module(order.module).main()


def stop() -> None:
    """End the process that has imported torch; the next fork starts another."""
    multiprocessing.forkserver._forkserver._stop()
