"""Processes forked from one that has imported torch, which takes most of the time of a short run.

The importing process is this file as a program. It forks a worker for each request, with an
environment, a working directory and pipes of its own; from there on the worker is what the
interpreter would have made of ``python -u program flags``. Tests of how a worker starts do not use
it.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any

LARGEST_REQUEST = 1 << 18
TRIES = 1000


class Worker:
    """What tests use of subprocess.Popen, for a process that is the child of another."""

    def __init__(self, stdout: int, stderr: int, status: int) -> None:
        self.stdout, self.stderr, self.status = map(os.fdopen, (stdout, stderr, status))
        self.pid = int(self.status.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and not select.select([self.status], [], [], 0)[0]:
            return None
        return self.wait()

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = int(self.status.readline())
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float) -> tuple[str, str]:
        """What is left of stdout and stderr; raises TimeoutExpired when they stay open."""
        said = ["", ""]

        def read(i: int, stream: Any) -> None:
            said[i] = stream.read()

        streams = enumerate((self.stdout, self.stderr))
        readers = [threading.Thread(target=read, args=one, daemon=True) for one in streams]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(timeout)
            if reader.is_alive():
                raise subprocess.TimeoutExpired("worker", timeout)
        self.wait()
        return said[0], said[1]


@functools.cache
def _importing_process() -> socket.socket:
    """A connection to it. It is one for all that run tests side by side, and leaves with the last.

    Its address is a name that the kernel keeps, which only one process can have (unix(7)).
    """
    session = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    address = f"\0spawnlaunch-warm-{session}"
    kind = socket.AF_UNIX, socket.SOCK_SEQPACKET
    with socket.socket(*kind) as listening, contextlib.suppress(OSError):
        listening.bind(address)  # unless another has been here before
        listening.listen()
        command = [sys.executable, "-u", __file__, str(listening.fileno())]
        environ = {**os.environ, "OMP_NUM_THREADS": "1"}
        nowhere: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        subprocess.Popen(command, env=environ, pass_fds=[listening.fileno()], **nowhere)
    ours = socket.socket(*kind)
    for _ in range(TRIES):  # the other has bound it, and begins to listen
        if ours.connect_ex(address) == 0:
            return ours
        time.sleep(0.01)
    raise ConnectionRefusedError("the importing process has ended")


def start(program: str, flags: tuple[str, ...], cwd: str, environ: dict[str, str]) -> Worker:
    """``python -u program flags``, with pipes for stdout and stderr."""
    request = {"argv": [program, *flags], "cwd": cwd, "environ": environ}
    pipes = [os.pipe() for _ in range(3)]
    socket.send_fds(
        _importing_process(), [json.dumps(request).encode()], [write for _, write in pipes]
    )
    for _, write in pipes:
        os.close(write)
    return Worker(*(read for read, _ in pipes))


def _serve(listening: socket.socket) -> dict[str, Any]:
    """Fork a worker for every request; returns the request, in the worker alone."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the watchers
    channels = [listening, listening.accept()[0]]
    while len(channels) > 1 or select.select([listening], [], [], 0)[0]:
        for channel in select.select(channels, [], [])[0]:
            if channel is listening:
                channels.append(listening.accept()[0])
                continue
            message, pipes, *_ = socket.recv_fds(channel, LARGEST_REQUEST, 3)
            if not message:
                channels.remove(channel)
                channel.close()
                continue
            if os.fork() == 0:
                for each in channels:
                    each.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                if (worker := os.fork()) == 0:
                    os.dup2(pipes[0], 1)
                    os.dup2(pipes[1], 2)
                    for pipe in pipes:
                        os.close(pipe)
                    return json.loads(message)  # type: ignore[no-any-return]
                _watch(worker, *pipes)
            for pipe in pipes:
                os.close(pipe)
    sys.exit()


def _watch(worker: int, stdout: int, stderr: int, status: int) -> None:
    """Report a child's id, and how it ended."""
    os.close(stdout)
    os.close(stderr)
    os.write(status, f"{worker}\n".encode())
    ended = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
    os.write(status, f"{ended}\n".encode())
    os._exit(0)


if __name__ == "__main__":
    importlib.import_module("torch._dynamo")  # every optimizer imports it when it is made
    gc.collect()
    gc.freeze()  # collections of the workers need not look at what they share
    wanted = _serve(socket.socket(fileno=int(sys.argv[1])))
    os.environ.clear()
    os.environ.update(wanted["environ"])
    os.chdir(wanted["cwd"])
    sys.argv = wanted["argv"]
    sys.path[0] = os.path.dirname(sys.argv[0])
    runpy.run_path(sys.argv[0], run_name="__main__")
