"""--record: the process that takes samples, started by the launcher, and the pipe to it.

What the launch is goes through the pipe first, then what the guard tells. The pipe's end is the end
of the record: nobody has to stop the recorder, whatever becomes of launcher and guard.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from shlex import quote
from typing import Any

from spawnlaunch import errors, failures, machine, reading
from spawnlaunch.run import launches, say

MOST_CHARS = 80  # of a run's name in that of a file
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CODE = """import sys; sys.path[0] = {!r}; from spawnlaunch import finder; finder.own_first()
sys.meta_path.insert(0, finder.Finder)
try:
    from spawnlaunch.watch import record
    record.main({!r})
except Exception as error:
    if finder.tell_change(error): sys.exit(71)
    raise"""


@contextmanager
def recorded(
    launch: launches.Launch, argv: Sequence[str], told: Mapping[str, Any], blocked: Iterable[int]
) -> Iterator[int]:
    """Record the launch; the value of the context is a pipe for its events.

    `told` is what --explain=json prints of it. Raises UsageError where no record can be written.
    """
    path = _made(launch)
    pid, pipe = _spawned(path, blocked)
    command = [sys.executable, "-m", "spawnlaunch", *argv]
    begins = {"kind": "start", "time": round(machine.time(), 3), "launch": launch.mark}
    try:
        _tell(pipe, {**begins, "host": launch.hostname, "command": command, "explain": told})
        yield pipe
    finally:
        _end(pid, pipe, path)


def _end(pid: int, pipe: int, path: str) -> None:
    """Wait until the record is written, and say so if its process died before the launch ended.

    The launcher may have reaped it with others: then only the pipe tells that nobody reads it.
    """
    poller = machine.poll()
    poller.register(pipe, 0)
    died = "has died" if poller.poll(0) else ""
    machine.close(pipe)
    with suppress(OSError):
        code = os.waitstatus_to_exitcode(machine.waitpid(pid, 0)[1])
        died = failures.how_it_ended(code) if code else ""
    if died:
        shown = f"python -m spawnlaunch.report {quote(os.path.dirname(path))}"
        say.say([f"the record broke off: its process (pid {pid}) {died}; {shown} shows it so far"])


def _tell(pipe: int, start: Mapping[str, Any]) -> None:
    """Write what the launch is; writes after this one do not wait for the recorder."""
    data = memoryview(json.dumps(start).encode() + b"\n")
    with suppress(OSError):  # it has ended, and has said why
        while data:
            data = data[machine.write(pipe, data) :]
    machine.set_blocking(pipe, False)


def _made(launch: launches.Launch) -> str:
    """The path of a new file for this launch on this node.

    It bears the time (UTC), the name of the run, which all nodes share, the number of the node, or
    the host's name where the launchers have not met yet, and a number that is by chance no other's.
    """
    directory, world = launch.request.record or ".", launch.resolution.world
    number = world.node_rank
    node = f"node-{machine.uname().nodename}" if number is None else f"node{number}"
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(machine.time()))
    run = re.sub(r"[^\w.+-]", "_", world.run_id, flags=re.ASCII)[:MOST_CHARS]
    name = f"{stamp}-{run}-{node}-{launch.mark.rpartition('-')[2]}.jsonl"
    path = os.path.join(reading.absolute(directory, "--record"), name)
    try:
        machine.makedirs(os.path.dirname(path), exist_ok=True)
        machine.close(machine.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    except OSError as error:
        raise errors.UsageError(
            f"--record {directory}: cannot write {path}: {error.strerror}; name a directory that "
            "can be written"
        ) from None
    return path


def _spawned(path: str, blocked: Iterable[int]) -> tuple[int, int]:
    """Start the recorder, with these signals blocked: its pid, and the pipe to it.

    It has a process group of its own, so that a Ctrl-C that ends the workers leaves it to tell.
    """
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
    return pid, outlet
