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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from spawnlaunch import machine
from spawnlaunch.run import events
from spawnlaunch.watch import find, sample
from spawnlaunch.world import identity, master
from spawnlaunch.world.managers import slurm

PATIENCE_S = 20.0  # for tasks that have not begun yet
STALLED_S = 5.0  # of a connection on which nothing comes
RETRY_S = 0.2
MOST_BYTES = 64 << 20
TAKEN = b"taken"
# What is no JSON, or too deep, or has other types and numbers than a sample has.
STRANGE = (ValueError, RecursionError, TypeError, AttributeError, KeyError, OverflowError)


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


class Gathered(NamedTuple):
    """What this task prints: samples (None: another task prints), and a complaint about others."""

    samples: list[sample.Sample] | None
    complaint: str = ""


def gather(step: Step, samples: Sequence[sample.Sample]) -> Gathered:
    """Bring together what the nodes have seen; ranks of one job are one launch then."""
    mine = [one._replace(launch=one.job) for one in samples]
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
    all_of_them = [one for node in step.nodes for one in found.get(node, ())]
    missing = [node for node in step.nodes if node not in found]
    said = f"nothing came from {', '.join(missing)} within {PATIENCE_S:g} s" if missing else ""
    return Gathered(sorted(all_of_them, key=lambda one: (one.launch, one.rank)), said)


def receive(step: Step, listening: socket.socket, found: dict[str, list[sample.Sample]]) -> None:
    """Receive the samples of other nodes, until all have come or PATIENCE_S is over."""
    deadline, poller = machine.running_s() + PATIENCE_S, machine.poll()
    poller.register(listening, select.POLLIN)
    listening.settimeout(STALLED_S)  # whoever was there may have gone
    while len(found) < len(step.nodes) and (left_s := deadline - machine.running_s()) > 0:
        if not events.patient_poll(poller, left_s):
            break
        # A stranger may come, or one that has gone.
        with suppress(OSError, *STRANGE), listening.accept()[0] as connection:
            connection.settimeout(STALLED_S)
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


def _hand_over(step: Step, samples: Sequence[sample.Sample]) -> str:
    """Send the samples to the hub; the result is why that failed, "" where it did not."""
    deadline = machine.running_s() + PATIENCE_S
    why = "it did not answer"
    while machine.running_s() < deadline:
        try:
            if _is_taken(step, samples):
                return ""
        except OSError as error:
            why = error.strerror or str(error)
        events.patient_sleep(RETRY_S)
    return f"cannot reach {step.hub} on port {step.port}: {why}; this is {step.here} alone"


def _is_taken(step: Step, samples: Sequence[sample.Sample]) -> bool:
    """Send the samples once; whether the hub has taken them. Raises OSError."""
    with socket.create_connection((step.hub, step.port), timeout=STALLED_S) as connection:
        connection.settimeout(PATIENCE_S)
        seen = [one.as_dict() for one in samples]
        told = {"job": step.job, "node": step.here, "now": machine.monotonic(), "samples": seen}
        connection.sendall(json.dumps(told).encode())
        connection.shutdown(socket.SHUT_WR)
        return connection.recv(len(TAKEN)) == TAKEN


def _as_seen_here(told: Mapping[str, Any]) -> list[sample.Sample]:
    """The samples of another node, with the times of its monotonic clock as times of ours."""
    later_s = machine.monotonic() - float(told["now"])
    return [sample.from_dict(one, later_s) for one in told["samples"]]
