"""--explain: every derived value, where it came from, and what would be started."""

from __future__ import annotations

import sys
from shlex import join

from spawnlaunch import cpuset, errors, records
from spawnlaunch.binding import picture, report
from spawnlaunch.run import environment, shared_errors, starting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from spawnlaunch.node import hardware
    from spawnlaunch.run import launches
    from spawnlaunch.world import identity


class Explanation(records.NamedTuple):
    """What --explain tells of a launch."""

    launch: launches.Launch
    node: hardware.Node
    workers: Sequence[launches.Worker]
    warnings: Sequence[str]


def explained(it: Explanation) -> str:
    """What --explain prints.

    Of several tasks whose outputs are brought together, rank 0 prints the text, and the others
    print single lines, which may come in any order.
    """
    launch = it.launch
    how, environ = launch.request.explain, launch.environ
    if how == "json":
        import json

        return json.dumps(as_json(it))
    if how == "svg":
        from spawnlaunch.watch import drawing

        told = as_json(it)
        return drawing.picture(told["node"], told["workers"], launch.host)
    if launch.resolution.world.rank > 0 and shared_errors.daemon_of_many(environ):
        return "\n".join(_lines_of_other_ranks(it))
    return "\n".join(_text(it, colour=sys.stdout.isatty() and not environ.get("NO_COLOR")))


def as_json(it: Explanation) -> dict[str, Any]:
    """The explanation for programs.

    Keys: mode; world, the fields of World but the mode and what roles add; sources, for each of
    them value, source and lost candidates; node; workers, those that this launcher would start;
    warnings. CPU lists are strings as the kernel writes them.
    """
    resolution = it.launch.resolution
    world = resolution.world._asdict()
    del world["role_rank"], world["role_world_size"]  # known once the launchers have met
    return {
        "mode": world.pop("mode"),
        "world": world,
        "sources": {name: _source(fact) for name, fact in resolution.sources.items()},
        "node": _node(it.node, it.launch.plan.allowed),
        "workers": [_worker(worker, it) for worker in it.workers],
        "warnings": list(it.warnings),
    }


def _source(fact: identity.Fact) -> dict[str, Any]:
    return {
        "value": fact.value,
        "source": fact.source,
        "lost": [each._asdict() for each in fact.rejected],
    }


def _node(node: hardware.Node, allowed: cpuset.CpuSet) -> dict[str, Any]:
    return {
        "cpus_allowed": cpuset.format(allowed),
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


def _cpus(cpus: cpuset.CpuSet | None) -> str | None:
    return None if cpus is None else cpuset.format(cpus)


def _worker(worker: launches.Worker, it: Explanation) -> dict[str, Any]:
    binding = worker.binding
    device = None if binding.device is None else it.node.devices[binding.device]
    return {
        "rank": worker.rank,
        "local_rank": worker.local_rank,
        "env": environment.changes(worker.environ, it.launch.environ),  # what it does not inherit
        "command": list(worker.command),
        "device": device and {"index": device.number, "address": device.address},
        "cpus": cpuset.format(binding.cpus),
        "memory_nodes": sorted(binding.memory_nodes),
        "threads": binding.threads,
        "locality": binding.locality,
        "note": binding.note,
    }


def _text(it: Explanation, colour: bool) -> Iterator[str]:
    """The explanation for people, line by line."""
    resolution, plan = it.launch.resolution, it.launch.plan
    world = resolution.world
    managers = ", ".join(manager.name for manager in resolution.managers) or "none"
    yield f"resource manager  {managers}"
    for name, fact in resolution.sources.items():
        value = "unknown" if fact.value is None else fact.value
        yield f"{name:16}  {value!s:20}  {fact.source}"
        for each in fact.rejected:
            yield f"{'':16}    not {each.value} from {each.source}: {each.why}"
    if resolution.gathering:
        from spawnlaunch.world import meeting

        yield meeting.described(resolution.gathering)
    yield ""
    yield picture.picture(it.node, plan.bindings, plan.allowed, colour)
    # A task does not know the other ranks of the node.
    srun = None if world.is_task else report.srun_line(plan.bindings, world.nnodes or 1)
    if srun:
        yield ""
        yield f"the same with srun: {srun}"
    for worker in it.workers:
        yield ""
        yield starting.worker_line(worker, it.node)
        yield f"    {join(worker.command)}"
        for name, value in environment.changes(worker.environ, it.launch.environ).items():
            yield f"    {name}={value}"
    if len(it.workers) < world.world_size:
        yield ""
        yield "other launchers say a line for each of their ranks; all of it with --explain=json"
    if it.warnings:
        yield ""
    for warning in it.warnings:
        yield f"warning: {errors.one_line(warning)}"


def _lines_of_other_ranks(it: Explanation) -> Iterator[str]:
    resolution, host = it.launch.resolution, it.launch.host
    for worker in it.workers:
        yield starting.worker_line(worker, it.node, host)
    if resolution.world.local_rank == 0:
        for warning in (*resolution.node_warnings, *it.launch.plan.warnings):
            yield f"warning: {host}: {warning}"
