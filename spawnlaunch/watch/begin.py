"""--record: the process that takes samples, started by the launcher, and the pipe to it.

What the launch is goes through the pipe first, then what the guard tells. The pipe's end is the end
of the record: nobody has to stop the recorder, whatever becomes of launcher and guard.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from spawnlaunch import errors, machine, reading
from spawnlaunch.run import launches

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CODE = (
    "import sys; sys.path[0] = {!r}; from spawnlaunch import finder; finder.own_first(); "
    "from spawnlaunch.watch import record; record.main({!r})"
)


@contextmanager
def recorded(
    launch: launches.Launch, argv: Sequence[str], told: Mapping[str, Any], blocked: Iterable[int]
) -> Iterator[int]:
    """Record the launch; the value of the context is a pipe for its events.

    `told` is what --explain=json prints of it. Raises UsageError where no record can be written.
    """
    recorder = start(launch.request.record or ".", launch.resolution.world.node_rank, blocked)
    command = [sys.executable, "-m", "spawnlaunch", *argv]
    begins = {"kind": "start", "launch": launch.mark, "host": launch.hostname}
    try:
        recorder.tell({**begins, "command": command, "explain": told})
        yield recorder.pipe
    finally:
        recorder.end()


class Recorder(NamedTuple):
    """The process, and the pipe to it."""

    pid: int
    pipe: int

    def tell(self, start: Mapping[str, Any]) -> None:
        """Write what the launch is; writes after this one do not wait for the recorder."""
        import json

        data = memoryview(json.dumps(start).encode() + b"\n")
        with suppress(OSError):  # it has ended, and has said why
            while data:
                data = data[machine.write(self.pipe, data) :]
        machine.set_blocking(self.pipe, False)

    def end(self) -> None:
        """Close the pipe, and wait until the record is written."""
        machine.close(self.pipe)
        with suppress(OSError):  # it had ended, and was reaped with others
            machine.waitpid(self.pid, 0)


def start(directory: str, node_rank: int | None, blocked: Iterable[int]) -> Recorder:
    """Start it; `blocked` is the signals that it is started with blocked. Raises UsageError.

    Its file bears the number of the node, or the host's name where the launchers have not met yet.
    It has a process group of its own, so that a Ctrl-C that ends the workers leaves it to tell.
    """
    name = f"node-{machine.uname().nodename}" if node_rank is None else f"node{node_rank}"
    path = os.path.join(reading.absolute(directory, "--record"), f"{name}.jsonl")
    try:
        machine.makedirs(os.path.dirname(path), exist_ok=True)
        machine.close(machine.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666))
    except OSError as error:
        raise errors.UsageError(
            f"--record {directory}: cannot write {path}: {error.strerror}; name a directory that "
            "can be written"
        ) from None
    return _spawned(path, blocked)


def _spawned(path: str, blocked: Iterable[int]) -> Recorder:
    inlet, outlet = machine.pipe()
    try:
        pid = machine.posix_spawn(
            sys.executable,
            [sys.executable, "-c", CODE.format(ROOT, path)],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, inlet, 0),
                (os.POSIX_SPAWN_DUP2, 2, 1),  # there may be no /dev/null
            ],
            setpgroup=0,
            setsigmask=blocked,
        )
    except OSError:
        machine.close(outlet)
        raise
    finally:
        machine.close(inlet)
    return Recorder(pid, outlet)
