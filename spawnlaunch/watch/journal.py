"""The guard's events for the recorder of --record, as JSON lines through a pipe.

A recorder that does not read is waited for at the end only; events that it could not be sent are
counted and reported, as is its death. watch/recorder.py has the kinds of events.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from spawnlaunch.base import events, machine, say
from spawnlaunch.outcome import endings, failures
from spawnlaunch.output import Output, pipes
from spawnlaunch.run import observer
from spawnlaunch.run.processes import Running
from spawnlaunch.workers import launches

# Values that may be known only when the launchers of several nodes have met, but for ranks.
OF_THE_NODE = (
    *("WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "GROUP_WORLD_SIZE"),
    *("MASTER_ADDR", "MASTER_PORT"),
)


MOST_BYTES = 1 << 23  # that may wait for a recorder: the ends of some ten thousand ranks


class Journal(observer.Observer):
    """The pipe to the recorder, and the events that go through it."""

    def __init__(self, pipe: int, hostname: str, loop: events.Loop, output: Output) -> None:
        self._pipe, self._hostname = pipe, hostname
        self._loop, self._output = loop, output
        loop.watch(pipe, self._broken, 0)  # the end of its reader is told without being asked for
        self._sink = pipes.Sink(machine.dup(pipe), loop, lambda _: None, lambda: None)
        self._untold = 0  # events for which there was no room

    def _broken(self) -> None:
        self._loop.forget(self._pipe)
        self._output.say(["the record breaks off here: the process that writes it has died"])

    def noted(self, kind: str, **values: object) -> None:
        event = {"kind": kind, "time": round(machine.time(), 3), **values}
        if len(self._sink.queue) > MOST_BYTES:
            self._untold += 1
        else:
            self._sink.put(json.dumps(event).encode() + b"\n")

    def began(self, workers: Sequence[launches.Worker], running: Mapping[int, Running]) -> None:
        environ = workers[0].environ
        restart = int(environ["TORCHELASTIC_RESTART_COUNT"])
        world = {name: environ[name] for name in OF_THE_NODE if name in environ}
        pids = {rank: one.pid for rank, one in running.items()}
        since = {rank: one.since for rank, one in running.items()}
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
        lost = self._untold + self._sink.queue.count(b"\n")
        words = f"the process that writes the record does not read: it lacks the last {lost} events"
        say.say([words] * bool(lost))
