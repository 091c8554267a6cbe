"""--record in the launcher: it starts the process that takes samples; its guard sends the events.

The description of the launch is in the record before that process starts, which gets the guard's
events through a pipe, as JSON lines. The pipe's end is the end of the record: no process has to
stop the recorder, whatever becomes of launcher and guard. A recorder that does not read is waited
for at the end only; events that it could not be sent are counted and reported, as is its death.
watch/recorder.py has the kinds of events.
"""

from __future__ import annotations

import json
import os
import re
import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from shlex import quote
from typing import Any

from spawnlaunch.base import errors, events, machine, reading, say, signals
from spawnlaunch.base.signals import signal
from spawnlaunch.cli import flags
from spawnlaunch.outcome import endings, failures
from spawnlaunch.output import Output, pipes
from spawnlaunch.run import observer
from spawnlaunch.run.processes import Running
from spawnlaunch.workers import files, launches

MOST_CHARS = 80  # of a run's name in that of a file
PATIENCE_S = 10.0  # with the recorder at the end: for its last lines
# Variables that may be known only when the launchers of several nodes have met, but for ranks.
WORLD_VARIABLES = (
    *("WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "GROUP_WORLD_SIZE"),
    *("MASTER_ADDR", "MASTER_PORT"),
)
MOST_BYTES = 1 << 23  # that may wait for a recorder: the ends of some ten thousand ranks
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CODE = """import sys; sys.path[0] = {!r}
try:  # the package may be another one by now
    from spawnlaunch.base import own_path; own_path.library_first()
    from spawnlaunch.watch import recorder; recorder.main({!r}, {!r})
except Exception as error:
    if "SPAWNLAUNCH_DEBUG" in sys.modules["os"].environ: raise
    sys.exit("spawnlaunch: the recorder ends: %s: %s" % (type(error).__name__, error))"""


@contextmanager
def recorded(launch: launches.Launch, explained: Mapping[str, Any]) -> Iterator[int]:
    """Record the launch; the value of the context is a pipe for its events.

    `explained` is the launch as --explain=json prints it.
    Raises UsageError where no record can be written.
    """
    command = [sys.executable, "-m", "spawnlaunch", *launch.argv]
    begins = {"kind": "start", "time": round(machine.time(), 3), "launch": launch.mark}
    start = {**begins, "host": launch.hostname, "command": command, "explain": explained}
    path = _begun(launch, json.dumps(start) + "\n")
    pid, pipe = _spawned(path, launch.mark, launch.blocked)
    try:
        yield pipe
    finally:
        _end(pid, pipe, path)


def _end(pid: int, pipe: int, path: str) -> None:
    """Wait until the record is written; print a line if its process died before the launch ended.

    The launcher may have reaped it with others: then only the pipe tells that no process reads it.
    A signal that means to end the job ends the wait.
    """
    poller = machine.poll()
    poller.register(pipe, 0)
    broke = "has died" if poller.poll(0) else ""
    machine.close(pipe)
    with suppress(ChildProcessError):
        status = _status(pid)
        if isinstance(status, str):
            machine.kill(pid, signal.SIGKILL)
            broke = f"{status}, and was killed"
        elif code := os.waitstatus_to_exitcode(status):
            broke = failures.end_in_words(code)
    if broke:
        shown = f"{flags.HERE} report {quote(os.path.dirname(path))}"
        say.say([f"the record broke off: its process (pid {pid}) {broke}; {shown} shows it so far"])


def _status(pid: int) -> int | str:
    """The recorder's wait status, or the reason why the wait is over."""
    waited = (signals.STOP | {signal.SIGCHLD}) & signals.watched()
    machine.pthread_sigmask(signal.SIG_BLOCK, waited)
    ear = events.Ear(events.SignalPipe(waited))
    poller = machine.poll()
    for fd in ear.fds:
        poller.register(fd, select.POLLIN)
    until = machine.running_s() + PATIENCE_S
    while machine.running_s() < until:
        ended, status = machine.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        # Another thread may take SIGCHLD.
        events.patient_poll(poller, min(until - machine.running_s(), events.LOOK_S))
        if ends := [signum for signum, _ in ear.read() if signum in signals.STOP]:
            return f"had not ended when {failures.signal_name(ends[0])} came"
    return f"did not end within {PATIENCE_S:g} s"


def _begun(launch: launches.Launch, start: str) -> str:
    """Begin a file for this launch on this node; the result is its path.

    The name has the time (UTC), which is also the beginning of a run's name that this launcher has
    chosen; that name, which all nodes share; the number of the node, or the host's name where the
    launchers have not met yet; and a random number.
    """
    directory, world = launch.request.record or ".", launch.resolution.world
    number = world.node_rank
    node = f"node-{machine.uname().nodename}" if number is None else f"node{number}"
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(machine.time()))
    run = re.sub(r"[^\w.+-]", "_", world.run_id, flags=re.ASCII)[:MOST_CHARS]
    begins = run if run[:8] == stamp[:8] else f"{stamp}-{run}"
    name = f"{begins}-{node}-{launch.mark.rpartition('-')[2]}.jsonl"
    path = os.path.join(reading.absolute(directory, "--record"), name)
    try:
        files.make_directory(os.path.dirname(path))
        files.write(path, start)
    except OSError as error:
        raise errors.UsageError(
            f"--record {directory}: cannot write {path}: {error.strerror}; name a directory that "
            "can be written"
        ) from None
    return path


def _spawned(path: str, mark: str, blocked: Iterable[int]) -> tuple[int, int]:
    """Start the recorder, with these signals blocked: its pid, and the pipe to it.

    It has a process group of its own, so that a Ctrl-C that ends the workers does not end it.
    """
    inlet, outlet = machine.pipe()
    try:
        pid = machine.posix_spawn(
            sys.executable,
            [sys.executable, "-c", CODE.format(ROOT, path, mark)],
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


class Journal(observer.Observer):
    """The pipe to the recorder, and the events that go through it."""

    def __init__(self, pipe: int, hostname: str, loop: events.Loop, output: Output) -> None:
        self._pipe, self._hostname = pipe, hostname
        self._loop, self._output = loop, output
        loop.watch(pipe, self._broken, 0)  # the end of its reader is told without being asked for
        self._sink = pipes.Sink(machine.dup(pipe), loop, lambda _: None, lambda: None)
        self._unsent = 0  # events for which there was no room

    def _broken(self) -> None:
        self._loop.forget(self._pipe)
        self._output.say(["the record breaks off here: the process that writes it has died"])

    def noted(self, kind: str, **values: object) -> None:
        event = {"kind": kind, "time": round(machine.time(), 3), **values}
        if len(self._sink.queue) > MOST_BYTES:
            self._unsent += 1
        else:
            self._sink.put(json.dumps(event).encode() + b"\n")

    def began(self, workers: Sequence[launches.Worker], running: Mapping[int, Running]) -> None:
        environ = workers[0].environ
        restart = int(environ["TORCHELASTIC_RESTART_COUNT"])
        world = {name: environ[name] for name in WORLD_VARIABLES if name in environ}
        pids = {rank: process.pid for rank, process in running.items()}
        since = {rank: process.since for rank, process in running.items()}
        self.noted("attempt", restart=restart, pids=pids, since=since, world=world)

    def exited(self, exited: failures.WorkerExit) -> None:
        self.noted("ended", **endings.as_json(exited))

    def ended(self, result: failures.LaunchResult, is_end_requested: Callable[[], bool]) -> None:
        """Write the end of the launch; its first failure may be on another node."""
        cause, failure = result.cause, result.first_failure
        elsewhere = cause and cause.kind == "failure" and not failure
        self.noted(
            "end",
            status=result.status,
            cause=cause and cause.kind,
            words=[] if elsewhere else [*endings.summary(result, self._hostname)],
            traceback=endings.last_words(failure) if failure else None,
        )
        self._output.await_readers([self._sink], 0.0, is_end_requested)
        missing_events = self._unsent + self._sink.queue.count(b"\n")
        if missing_events:
            why = "the process that writes the record does not read"
            say.say([f"{why}: it lacks the last {missing_events} events"])
