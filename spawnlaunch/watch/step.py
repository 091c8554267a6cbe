"""A table of several nodes: `top` in a Slurm step asks each of its nodes, and merges the answers.

    srun --jobid J --overlap spawnlaunch top --once

The first task starts one more step, with a task on each node that looks at the ranks of the job
there, and writes its samples to its stdout, which Slurm brings to this process only; the other
tasks end at once. No port is opened and no file is shared.

    NODE TEXT    a part of a JSON object: Slurm keeps lines of less than 1,024 bytes whole
    NODE         the end of the object

The first object of a node has its samples; then it answers each line of its stdin by the time of
its clock.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from subprocess import PIPE
from typing import Any, NamedTuple, TypeAlias

from spawnlaunch.hang import asked
from spawnlaunch.watch import find, usage
from spawnlaunch.world import identity
from spawnlaunch.world.managers import slurm

PATIENCE_S = 20.0  # for tasks to begin, and to look
STALLED_S = 5.0  # until a clock is reported
CLOCKS = 5  # times that each node is asked for its clock: the best one counts
PART = 900  # characters of a line
CONF = "SLURM_CONF"

Answers: TypeAlias = Mapping[str, Mapping[int, asked.Testimony]]  # by launch or job, and rank


class Step(NamedTuple):
    """The step that this process is a task of."""

    is_first: bool  # of all tasks
    here: str  # this node, and all of them, by Slurm's names
    nodes: Sequence[str]
    environ: identity.Environ

    def has(self, rank: find.Rank) -> bool:
        """Whether a rank is of this job, on this node; True for one without Slurm's variables."""
        names = (slurm.JOB_ID, slurm.NODENAME)
        return all(rank.environ.get(name) in (None, self.environ.get(name)) for name in names)


def of(environ: identity.Environ) -> Step | None:
    """The step of this process; None where it has one task, or there is none. Raises UsageError."""
    step = slurm.Step(environ)
    if not step.is_present():
        return None
    rank, size, host, names = step.rank(), step.world_size(), step.host_name(), step.node_names()
    if not (rank and size and host and names) or size.value == 1:
        return None
    return Step(rank.value == 0, host.value, names.value, environ)


class Collected(NamedTuple):
    """The samples and answers of one node, or of all."""

    samples: list[usage.Sample]
    answers: Answers  # of the ranks, by job
    uncertain_s: float = 0.0  # so much may the clock of its answers differ from ours


def by_job(samples: Sequence[usage.Sample], answers: Answers) -> Collected:
    """This node's samples and answers by job: ranks of one job are one launch then."""
    jobs = {sample.launch: sample.job for sample in samples}
    return Collected(
        [sample._replace(launch=sample.job) for sample in samples],
        {jobs[launch]: ranks for launch, ranks in answers.items() if launch in jobs},
    )


# The task on a node


def report(step: Step, collected: Collected) -> None:
    """Write this node's samples, and its clock whenever a line comes, until stdin ends."""
    _write(step.here, {
        "now": time.monotonic(),
        "samples": [sample.as_dict() for sample in collected.samples],
        "answers": {
            job: {rank: asked.as_json(answer) for rank, answer in ranks.items()}
            for job, ranks in collected.answers.items()
        },
    })  # fmt: skip
    for _ in sys.stdin:
        _write(step.here, {"clock": time.time_ns()})


def _write(node: str, fields: Mapping[str, Any]) -> None:
    text = json.dumps(fields)
    parts = [text[i : i + PART] for i in range(0, len(text), PART)]
    print(*(f"{node} {part}" for part in parts), node, sep="\n", flush=True)


# The first task of all


def gather(step: Step, command: Sequence[str]) -> tuple[Collected | None, str]:
    """Gather what `command` sees on all nodes, and a complaint about nodes that do not answer.

    Raises OSError where srun cannot be started.
    """
    size = len(step.nodes)
    job, names = step.environ[slurm.JOB_ID], ",".join(step.nodes)
    srun = ["srun", f"--jobid={job}", "--overlap", f"--nodes={size}", f"--ntasks={size}",
            f"--nodelist={names}"]  # fmt: skip
    # Other variables of Slurm are of the step that this is a task of.
    variables = step.environ.items()
    environ = {n: value for n, value in variables if n == CONF or not n.startswith("SLURM")}
    with subprocess.Popen([*srun, *command], stdin=PIPE, stdout=PIPE, env=environ) as asking:
        try:
            by_node = _received(_Nodes(asking, step.nodes))
            asking.communicate(timeout=STALLED_S)  # they end with their stdin
        except subprocess.TimeoutExpired:
            asking.terminate()
    missing = [node for node in step.nodes if node not in by_node]
    complaint = f"nothing came from {', '.join(missing)}" if missing else ""
    if not by_node:
        return None, complaint
    answers: dict[str, dict[int, asked.Testimony]] = {}
    for each in by_node.values():
        for job, ranks in each.answers.items():
            answers.setdefault(job, {}).update(ranks)
    samples = [sample for each in by_node.values() for sample in each.samples]
    samples.sort(key=lambda sample: (sample.launch, sample.rank))
    uncertain_s = max(each.uncertain_s for each in by_node.values())
    return Collected(samples, answers, uncertain_s), complaint


class _Nodes:
    """The tasks on all nodes, which are asked and answer."""

    def __init__(self, srun: subprocess.Popen[bytes], nodes: Sequence[str]) -> None:
        assert srun.stdin
        assert srun.stdout
        self._to, self._from = srun.stdin.fileno(), srun.stdout.fileno()
        self.names = nodes
        self._parts: dict[str, list[str]] = {node: [] for node in nodes}
        self._rest = b""

    def request_clocks(self) -> None:
        """Ask all of them for their clocks."""
        with suppress(BrokenPipeError):
            os.write(self._to, b"\n")

    def answers(self, within_s: float, count: int) -> Iterator[tuple[str, Any]]:
        """Objects, each with its node's name: `count` of them, or those that come in time."""
        until = time.monotonic() + within_s
        while count and select.select([self._from], [], [], max(0, until - time.monotonic()))[0]:
            data = os.read(self._from, 1 << 16)
            if not data:
                return
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                node, _, part = line.decode(errors="replace").partition(" ")
                parts = self._parts.get(node)
                if parts is None:
                    continue  # of a prolog
                if part:
                    parts.append(part)
                    continue
                with suppress(ValueError):
                    yield node, json.loads("".join(parts))
                    count -= 1
                parts.clear()


def _received(nodes: _Nodes) -> dict[str, Collected]:
    """The samples and answers of each node, by its name, in their order."""
    firsts = {
        node: (first, time.monotonic() - first["now"])
        for node, first in nodes.answers(PATIENCE_S, len(nodes.names))
    }
    clocks: dict[str, list[tuple[int, int]]] = {}  # how uncertain, and how much later ours is; ns
    for _ in range(CLOCKS):
        before = time.time_ns()
        nodes.request_clocks()
        for node, clock in nodes.answers(STALLED_S, len(firsts)):
            after = time.time_ns()  # it was asked at any moment between these two
            later = (before + after) // 2 - clock.get("clock", 0)
            clocks.setdefault(node, []).append(((after - before) // 2, later))
    by_node = {}
    for node in nodes.names:  # with the times of each converted to our clocks
        if node in firsts and node in clocks:
            (first, later_s), (uncertain_ns, later_ns) = firsts[node], min(clocks[node])
            answers = {
                job: {int(rank): asked.from_json(each, later_ns) for rank, each in ranks.items()}
                for job, ranks in first["answers"].items()
            }
            samples = [usage.from_dict(fields, later_s) for fields in first["samples"]]
            by_node[node] = Collected(samples, answers, uncertain_ns / 1e9)
    return by_node
