"""What the guard tells the recorder of --record: events, as JSON lines through a pipe.

A recorder that does not read is not waited for; that it has died is said. watch/record.py has what
each kind is.
"""

from __future__ import annotations

import json
from contextlib import suppress

from spawnlaunch import machine
from spawnlaunch.run import report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spawnlaunch.run import events, launches
    from spawnlaunch.run.output import Output
    from spawnlaunch.run.processes import Running


# What may be known only when the launchers of several nodes have met, but for ranks.
OF_THE_NODE = (
    *("WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "GROUP_WORLD_SIZE"),
    *("MASTER_ADDR", "MASTER_PORT"),
)


class Journal:
    """The pipe, and what goes through it."""

    def __init__(self, pipe: int, hostname: str, loop: events.Loop, output: Output) -> None:
        self._pipe, self._hostname = pipe, hostname
        self._loop, self._output = loop, output
        loop.watch(pipe, self._broken, 0)  # the end of its reader is told without being asked for

    def _broken(self) -> None:
        self._loop.forget(self._pipe)
        self._output.say(["the record breaks off here: the process that writes it has died"])

    def tell(self, kind: str, **values: object) -> None:
        """Tell of an event."""
        event = {"kind": kind, "time": round(machine.time(), 3), **values}
        with suppress(OSError):
            machine.write(self._pipe, json.dumps(event).encode() + b"\n")

    def began(self, workers: Sequence[launches.Worker], running: Mapping[int, Running]) -> None:
        """The workers of an attempt were started; `running` has by rank those that could be."""
        told = workers[0].environ
        restart = int(told["TORCHELASTIC_RESTART_COUNT"])
        world = {name: told[name] for name in OF_THE_NODE if name in told}
        pids = {rank: one.pid for rank, one in running.items()}
        since = {rank: one.since for rank, one in running.items()}
        self.tell("attempt", restart=restart, pids=pids, since=since, world=world)

    def ended(self, one: launches.WorkerExit) -> None:
        """A rank has ended."""
        self.tell("ended", **report.as_json(one))

    def end(self, result: launches.LaunchResult) -> None:
        """The launch has ended; what failed first may have done so on another node."""
        cause, failure = result.cause, result.first_failure
        elsewhere = cause and cause.kind == "failure" and not failure
        self.tell(
            "end",
            status=result.status,
            cause=cause and cause.kind,
            words=[] if elsewhere else [*report.summary(result, self._hostname)],
            traceback=report.last_words(failure) if failure else None,
        )
