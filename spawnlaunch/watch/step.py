"""One table of several nodes: what the tasks of a Slurm step see is brought to one of them.

    srun --jobid J --overlap python -m spawnlaunch.top --once

The first task on each node looks at the ranks of the job there, and the others end at once. That of
the step's first node listens on a port that all compute of job and step; the others connect, each
hands over one JSON object, and ends when it hears that it was taken. No file is shared. A task that
cannot reach it prints its own table, and says so.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

from spawnlaunch import machine
from spawnlaunch.rollcall import asked
from spawnlaunch.run import events
from spawnlaunch.watch import find, sample
from spawnlaunch.world import identity, master
from spawnlaunch.world.managers import slurm

PATIENCE_S = 20.0  # for tasks that have not begun yet
STALLED_S = 5.0  # of a connection on which nothing comes
RETRY_S = 0.2
MOST_BYTES = 64 << 20
CLOCKS = 5  # times that the hub is asked for its clock: the best one counts
TAKEN = b"taken"
# What is no JSON, or too deep, or has other types and numbers than a sample has.
STRANGE = (ValueError, RecursionError, TypeError, AttributeError, KeyError, OverflowError)

Answers: TypeAlias = Mapping[str, Mapping[int, asked.Testimony]]  # by launch or job, and rank


class Step(NamedTuple):
    """The step that this process is a task of."""

    job: str  # JOB.STEP
    is_first_here: bool  # of the tasks on this node
    here: str  # this node, and all of them, by Slurm's names
    nodes: Sequence[str]
    hub: str  # the node where all come together
    environ: identity.Environ

    @property
    def port(self) -> int:
        """The port at which the hub listens; other steps have other ports."""
        return master.port_of(self.job)

    def has(self, rank: find.Rank) -> bool:
        """Whether a rank is of this job, on this node; True for one without Slurm's variables."""
        names = (slurm.JOB_ID, slurm.NODENAME)
        return all(rank.environ.get(name) in (None, self.environ.get(name)) for name in names)


def of(environ: identity.Environ) -> Step | None:
    """The step; None where this is no task of a step with several. Raises UsageError."""
    if not slurm.STEP.is_present(environ):
        return None
    asked = ("job", "local_rank", "own_host", "node_names", "node_0_host", "world_size")
    told = {name: slurm.STEP.answer(name, environ) for name in asked}
    values = {name: fact.value for name, fact in told.items() if fact}
    if len(values) < len(asked) or values["world_size"] == 1:
        return None
    return Step(
        job=values["job"],
        is_first_here=values["local_rank"] == 0,
        here=values["own_host"],
        nodes=values["node_names"],
        hub=values["node_0_host"],
        environ=environ,
    )


class Seen(NamedTuple):
    """What one node, or all, have seen."""

    samples: list[sample.Sample]
    answers: Answers  # of the ranks, by job
    uncertain_s: float = 0.0  # so much may the clock of its answers differ from that of the hub


class Gathered(NamedTuple):
    """What this task prints (None: another task prints), and a complaint about others."""

    seen: Seen | None
    complaint: str = ""


def gather(step: Step, samples: Sequence[sample.Sample], answers: Answers) -> Gathered:
    """Bring together what the nodes have seen; ranks of one job are one launch then."""
    jobs = {one.launch: one.job for one in samples}
    mine = Seen(
        [one._replace(launch=one.job) for one in samples],
        {jobs[launch]: told for launch, told in answers.items() if launch in jobs},
    )
    if len(step.nodes) == 1:
        return Gathered(mine)
    if step.here != step.hub:
        why = _hand_over(step, mine)
        return Gathered(mine, why) if why else Gathered(None)
    found = {step.here: mine}
    try:
        listening = socket.create_server(("", step.port), backlog=len(step.nodes))
    except OSError as error:
        return Gathered(mine, f"cannot listen on port {step.port} for other nodes: {error}")
    with listening:
        receive(step, listening, found)
    missing = [node for node in step.nodes if node not in found]
    said = f"nothing came from {', '.join(missing)} within {PATIENCE_S:g} s" if missing else ""
    return Gathered(_together([found[node] for node in step.nodes if node in found]), said)


def _together(found: Sequence[Seen]) -> Seen:
    samples = [one for seen in found for one in seen.samples]
    answers: dict[str, dict[int, asked.Testimony]] = {}
    for job, told in (each for seen in found for each in seen.answers.items()):
        answers.setdefault(job, {}).update(told)
    samples.sort(key=lambda one: (one.launch, one.rank))
    return Seen(samples, answers, max(seen.uncertain_s for seen in found))


def receive(step: Step, listening: socket.socket, found: dict[str, Seen]) -> None:
    """Receive what other nodes have seen, until all have come or PATIENCE_S is over."""
    deadline, poller = machine.running_s() + PATIENCE_S, machine.poll()
    poller.register(listening, select.POLLIN)
    listening.settimeout(STALLED_S)  # whoever was there may have gone
    while len(found) < len(step.nodes) and (left_s := deadline - machine.running_s()) > 0:
        if not events.patient_poll(poller, left_s):
            break
        # A stranger may come, or one that has gone.
        with suppress(OSError, *STRANGE), listening.accept()[0] as connection:
            connection.settimeout(STALLED_S)
            for _ in range(CLOCKS):
                connection.recv(1)
                connection.sendall(struct.pack("!q", time.time_ns()))
            told = json.loads(_read(connection))
            if told["job"] == step.job and told["node"] in step.nodes:
                found[told["node"]] = _as_seen_here(told)
                connection.sendall(TAKEN)


def _read(connection: socket.socket) -> bytes:
    content, deadline = b"", machine.monotonic() + STALLED_S
    while (more := connection.recv(1 << 16)) and len(content) < MOST_BYTES:
        content += more
        if machine.monotonic() > deadline:
            raise TimeoutError("it says a little now and then")
    return content


def _hand_over(step: Step, seen: Seen) -> str:
    """Send it to the hub; the result is why that failed, "" where it did not."""
    deadline = machine.running_s() + PATIENCE_S
    why = "it did not answer"
    while machine.running_s() < deadline:
        try:
            if _is_taken(step, seen):
                return ""
        except OSError as error:
            why = error.strerror or str(error)
        events.patient_sleep(RETRY_S)
    return f"cannot reach {step.hub} on port {step.port}: {why}; this is {step.here} alone"


def _is_taken(step: Step, seen: Seen) -> bool:
    """Send it once; whether the hub has taken it. Raises OSError."""
    with socket.create_connection((step.hub, step.port), timeout=STALLED_S) as connection:
        connection.settimeout(PATIENCE_S)
        uncertain_ns, later_ns = min(_clock_of(connection) for _ in range(CLOCKS))
        told = {
            "job": step.job, "node": step.here, "now": machine.monotonic(),
            "later_ns": later_ns, "uncertain_s": uncertain_ns / 1e9,
            "samples": [one.as_dict() for one in seen.samples],
            "answers": {
                job: {rank: asked.as_json(one) for rank, one in ranks.items()}
                for job, ranks in seen.answers.items()
            },
        }  # fmt: skip
        connection.sendall(json.dumps(told).encode())
        connection.shutdown(socket.SHUT_WR)
        return connection.recv(len(TAKEN)) == TAKEN


def _clock_of(hub: socket.socket) -> tuple[int, int]:
    """How much later the hub's clock is than ours, in ns, behind how uncertain that is. It was
    asked between two looks at ours, and may have answered at any moment between them."""
    before = time.time_ns()
    hub.sendall(b"?")
    told = hub.recv(8, socket.MSG_WAITALL)
    after = time.time_ns()
    if len(told) < 8:
        raise ConnectionAbortedError("the hub has gone")
    return (after - before) // 2, int(struct.unpack("!q", told)[0]) - (before + after) // 2


def _as_seen_here(told: Mapping[str, Any]) -> Seen:
    """What another node has seen, with the times of its clocks as times of ours."""
    later_s, later_ns = machine.monotonic() - float(told["now"]), int(told["later_ns"])
    return Seen(
        [sample.from_dict(one, later_s) for one in told["samples"]],
        {
            job: {int(rank): asked.from_json(one, later_ns) for rank, one in ranks.items()}
            for job, ranks in told["answers"].items()
        },
        int(told["uncertain_s"] * 1e9) / 1e9,  # which must be a finite number
    )
