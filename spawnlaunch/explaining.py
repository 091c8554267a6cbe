"""--explain: every derived value, where it came from, and what would be started."""

from __future__ import annotations

import sys
from shlex import join

from spawnlaunch import cpuset, errors, explained, records
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


def page(it: Explanation) -> str:
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
    """The explanation for programs: an ExplainedLaunch."""
    resolution = it.launch.resolution
    sources = {
        name: _made(
            explained.ExplainedSource, fact, lost=[_made(explained.Lost, r) for r in fact.rejected]
        )
        for name, fact in resolution.sources.items()
    }
    return _made(
        explained.ExplainedLaunch, it,
        mode=resolution.world.mode, world=_made(explained.ExplainedWorld, resolution.world),
        sources=sources, node=_node(it.node, it.launch.plan.allowed),
        workers=[_worker(worker, it) for worker in it.workers],
    )  # fmt: skip


def _made(kind: type, record: object, **known: object) -> dict[str, Any]:
    """One of the dictionaries of `explained`: what is known, else the fields of the record."""
    return {
        key: _plain(known[key] if key in known else getattr(record, key))
        for key in kind.__annotations__
    }


def _plain(value: object) -> object:
    """Sets of CPUs are text, as the kernel writes them."""
    if isinstance(value, frozenset):
        return cpuset.format(value)
    return [*map(_plain, value)] if isinstance(value, tuple) else value


def _node(node: hardware.Node, allowed: cpuset.CpuSet) -> dict[str, Any]:
    return _made(
        explained.ExplainedNode, node,
        cpus_allowed=allowed, cores=len(node.cores), siblings=node.cores,
        numa=[_made(explained.ExplainedNuma, each) for each in node.numa],
        devices=[_made(explained.ExplainedDevice, d, index=d.number) for d in node.devices],
        nics=[_made(explained.ExplainedNic, each) for each in node.nics],
    )  # fmt: skip


def _worker(worker: launches.Worker, it: Explanation) -> dict[str, Any]:
    binding = worker.binding
    device = None if binding.device is None else it.node.devices[binding.device]
    known = {
        **binding._asdict(),
        "env": environment.changes(worker.environ, it.launch.environ),
        "device": device and _made(explained.WorkerDevice, device, index=device.number),
        "memory_nodes": sorted(binding.memory_nodes),
    }
    return _made(explained.ExplainedWorker, worker, **known)


def _text(it: Explanation, colour: bool) -> Iterator[str]:
    """The explanation for people, line by line."""
    resolution, plan = it.launch.resolution, it.launch.plan
    world = resolution.world
    yield from _lines_of_sources(resolution)
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
        changes = environment.changes(worker.environ, it.launch.environ)
        yield from (f"    {name}={value}" for name, value in changes.items())
    if len(it.workers) < world.world_size:
        yield ""
        yield "other launchers say a line for each of their ranks; all of it with --explain=json"
    if it.warnings:
        yield ""
        yield from (f"warning: {errors.one_line(warning)}" for warning in it.warnings)


def _lines_of_sources(resolution: identity.Resolution) -> Iterator[str]:
    managers = ", ".join(manager.name for manager in resolution.managers) or "none"
    yield f"resource manager  {managers}"
    for name, fact in resolution.sources.items():
        value = "unknown" if fact.value is None else fact.value
        yield f"{name:16}  {value!s:20}  {fact.source}"
        for each in fact.rejected:
            yield f"{'':16}    not {each.value} from {each.source}: {each.why}"


def _lines_of_other_ranks(it: Explanation) -> Iterator[str]:
    resolution, host = it.launch.resolution, it.launch.host
    for worker in it.workers:
        yield starting.worker_line(worker, it.node, host)
    if resolution.world.local_rank == 0:
        for warning in (*resolution.node_warnings, *it.launch.plan.warnings):
            yield f"warning: {host}: {warning}"
