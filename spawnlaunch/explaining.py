"""--explain: every derived value, where it came from, and what would be started."""

from __future__ import annotations

import sys
from shlex import join

from spawnlaunch import cpuset
from spawnlaunch.binding.picture import picture
from spawnlaunch.binding.plan import Plan
from spawnlaunch.binding.report import report_line, srun_line
from spawnlaunch.errors import one_line
from spawnlaunch.node import Node
from spawnlaunch.records import NamedTuple
from spawnlaunch.run import shared_errors
from spawnlaunch.run.environment import changes
from spawnlaunch.run.model import Worker
from spawnlaunch.world.model import Fact, Resolution

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any


class Explanation(NamedTuple):
    """All that a launch would have gone by."""

    resolution: Resolution
    node: Node
    plan: Plan
    workers: Sequence[Worker]
    warnings: Sequence[str]
    environ: Mapping[str, str]  # what the launcher inherited


def explained(it: Explanation, how: str, host: str) -> str:
    """What --explain prints; the texts of several launchers would come through each other."""
    if how == "json":
        import json

        return json.dumps(as_json(it))
    if how == "svg":
        from spawnlaunch.watch.drawing import picture as drawing

        told = as_json(it)
        return drawing(told["node"], told["workers"], host)
    if it.resolution.world.rank > 0 and shared_errors.daemon_of_many(it.environ):
        return "\n".join(as_lines(it, host))
    return "\n".join(as_text(it, colour=sys.stdout.isatty() and not it.environ.get("NO_COLOR")))


def as_json(it: Explanation) -> dict[str, Any]:
    """The explanation for programs.

    Keys: mode; world, the fields of World but the mode; sources, for each of them value, source and
    lost candidates; node; workers, those that this launcher would start; warnings. CPU lists are
    strings as the kernel writes them.
    """
    world = it.resolution.world._asdict()
    return {
        "mode": world.pop("mode"),
        "world": world,
        "sources": {name: _source(fact) for name, fact in it.resolution.sources.items()},
        "node": _node(it.node, it.plan),
        "workers": [_worker(worker, it) for worker in it.workers],
        "warnings": list(it.warnings),
    }


def _source(fact: Fact) -> dict[str, Any]:
    return {
        "value": fact.value,
        "source": fact.source,
        "lost": [each._asdict() for each in fact.rejected],
    }


def _node(node: Node, plan: Plan) -> dict[str, Any]:
    return {
        "cpus_allowed": cpuset.format(plan.allowed),
        "cpus_online": cpuset.format(node.cpus_online),
        "cores": len(node.cores),
        "siblings": [cpuset.format(core) for core in node.cores],
        "l3": [cpuset.format(group) for group in node.l3],
        "packages": [cpuset.format(package) for package in node.packages],
        "numa": [
            {"id": n.id, "cpus": cpuset.format(n.cpus), "memory": n.memory, "kind": n.kind}
            for n in node.numa
        ],
        "devices": [
            {
                "index": device.number,
                "address": device.address,
                "vendor": device.vendor,
                "kind": device.kind,
                "numa": device.numa,
                "local_cpus": _cpus(device.local_cpus),
            }
            for device in node.devices
        ],
        "nics": [{**nic._asdict(), "local_cpus": _cpus(nic.local_cpus)} for nic in node.nics],
    }


def _cpus(cpus: frozenset[int] | None) -> str | None:
    return None if cpus is None else cpuset.format(cpus)


def _worker(worker: Worker, it: Explanation) -> dict[str, Any]:
    binding = worker.binding
    device = None if binding.device is None else it.node.devices[binding.device]
    return {
        "rank": worker.rank,
        "local_rank": worker.local_rank,
        "env": changes(worker.environ, it.environ),  # what it does not inherit
        "command": list(worker.command),
        "device": device and {"index": device.number, "address": device.address},
        "cpus": cpuset.format(binding.cpus),
        "memory_nodes": sorted(binding.memory_nodes),
        "threads": binding.threads,
        "locality": binding.locality,
        "note": binding.note,
    }


def as_text(it: Explanation, colour: bool) -> Iterator[str]:
    """The explanation for people, line by line."""
    managers = ", ".join(manager.name for manager in it.resolution.managers) or "none"
    yield f"resource manager  {managers}"
    for name, fact in it.resolution.sources.items():
        value = "unknown" if fact.value is None else fact.value
        yield f"{name:16}  {value!s:20}  {fact.source}"
        for each in fact.rejected:
            yield f"{'':16}    not {each.value} from {each.source}: {each.why}"
    if it.resolution.gathering:
        from spawnlaunch.world.meeting import described

        yield described(it.resolution.gathering)
    yield ""
    yield picture(it.node, it.plan.bindings, it.plan.allowed, colour)
    yield from _same_with_srun(it)
    for worker in it.workers:
        yield ""
        omp = worker.environ["OMP_NUM_THREADS"]
        yield report_line(worker.rank, worker.binding, it.node, omp)
        yield f"    {join(worker.command)}"
        for name, value in changes(worker.environ, it.environ).items():
            yield f"    {name}={value}"
    if len(it.workers) < it.resolution.world.world_size:
        yield ""
        yield "other launchers say a line for each of their ranks; all of it with --explain=json"
    if it.warnings:
        yield ""
    for warning in it.warnings:
        yield f"warning: {one_line(warning)}"


def as_lines(it: Explanation, host: str) -> Iterator[str]:
    """What the launchers of other ranks add to rank 0's text: lines that may come in any order."""
    for worker in it.workers:
        omp = worker.environ["OMP_NUM_THREADS"]
        yield report_line(worker.rank, worker.binding, it.node, omp, host)
    if it.resolution.world.local_rank == 0:
        for warning in (*it.resolution.of_this_node, *it.plan.warnings):
            yield f"warning: {host}: {warning}"


def _same_with_srun(it: Explanation) -> Iterator[str]:
    """The line that makes srun bind alike, where all ranks of the node are known here."""
    line = srun_line(it.plan.bindings, it.resolution.world.nnodes or 1)
    if line and not it.resolution.world.is_task:
        yield ""
        yield f"the same with srun: {line}"
