"""--explain: every derived value, its source, and the workers that would be started."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from shlex import join

from spawnlaunch.base import cpuset, errors, records, say
from spawnlaunch.binding import neighbours, picture, placement
from spawnlaunch.node import cpus
from spawnlaunch.run import shared_errors
from spawnlaunch.workers import environment, launches, routes, starting
from spawnlaunch.world import identity, meeting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Explanation(records.NamedTuple):
    """The launch that --explain shows, with its workers and warnings."""

    launch: launches.Launch
    workers: Sequence[launches.Worker]
    warnings: Sequence[str]


def page(explanation: Explanation) -> str:
    """The output of --explain.

    Where the outputs of several tasks are brought together, rank 0 prints the text, and the others
    print single lines, which may come in any order.
    """
    launch = explanation.launch
    form, environ = launch.request.explain, launch.environ
    if form == "json":
        import json

        return json.dumps(as_json(explanation))
    if form == "svg":
        from spawnlaunch.watch import drawing

        content = as_json(explanation)
        return drawing.picture(content["node"], content["workers"], launch.host)
    if launch.resolution.world.rank > 0 and shared_errors.daemon_of_many(environ):
        node, host = launch.node, launch.host
        lines = [starting.worker_line(worker, node, host) for worker in explanation.workers]
        if launch.resolution.world.local_rank == 0:
            notices = [text for scope, text in launch.notices if scope == say.NODE]
            lines += [f"warning: {host}: {text}" for text in notices]
        return "\n".join(lines)
    return "\n".join(_text(explanation, colour=sys.stdout.isatty() and not environ.get("NO_COLOR")))


def as_json(explanation: Explanation) -> dict[str, Any]:
    """The explanation for programs: the records of the launch, field by field."""
    resolution, node = explanation.launch.resolution, explanation.launch.node
    sources = {
        name: {"value": fact.value, "source": fact.source, "lost": _plain(fact.rejected)}
        for name, fact in resolution.sources.items()
    }
    return {
        "mode": resolution.world.mode,
        "world": _plain(resolution.world),
        "sources": sources,
        "node": {
            **_plain(node),
            "cpus_allowed": cpuset.format(explanation.launch.plan.allowed),
            "quota": _plain(node.quota),
            "cores": len(node.cores),
            "siblings": _plain(node.cores),
            "devices": [{"index": each.number, **_plain(each)} for each in node.devices],
        },
        "workers": [_worker(worker, explanation) for worker in explanation.workers],
        "warnings": [*explanation.warnings],
    }


def _plain(value: Any) -> Any:
    """Records as dictionaries; sets of CPUs as text, as the kernel writes them."""
    if isinstance(value, frozenset):
        return cpuset.format(value)
    if hasattr(value, "_asdict"):
        return {name: _plain(field) for name, field in value._asdict().items()}
    return [*map(_plain, value)] if isinstance(value, tuple) else value


def _worker(worker: launches.Worker, explanation: Explanation) -> dict[str, Any]:
    binding = worker.binding
    device = None if binding.device is None else explanation.launch.node.devices[binding.device]
    return {
        "rank": worker.rank,
        "local_rank": worker.local_rank,
        "env": environment.changes(worker.environ, explanation.launch.environ),
        "command": [*worker.command],
        **_plain(binding),
        "device": device and {"index": device.number, "address": device.address},
        "memory_nodes": sorted(binding.memory_nodes),
    }


def _text(explanation: Explanation, colour: bool) -> Iterator[str]:
    """The explanation for people, line by line."""
    launch = explanation.launch
    resolution, plan = launch.resolution, launch.plan
    world = resolution.world
    yield from _lines_of_sources(resolution)
    if launch.node.isolated:
        path = f"{cpus.CPU_DIR}/isolated"
        yield f"{'isolated CPUs':16}  {cpuset.format(launch.node.isolated):20}  {path}"
    if quota := launch.node.quota:
        yield f"{'quota of CPUs':16}  {quota.cpus:<20.3g}  {quota.path}"
    if resolution.gathering:
        yield meeting.described(resolution.gathering)
    yield ""
    bindings, unknown = plan.bindings, ""
    if world.is_task and world.local_world_size > 1:
        bindings, unknown = neighbours.bindings_of_all(
            launch.request, launch.node, launch.seen, resolution, plan.bindings[0]
        )
    allowed = plan.allowed.union(*(binding.cpus for binding in bindings))
    yield picture.picture(launch.node, bindings, allowed, colour)
    if unknown:
        yield ""
        yield f"the other local ranks of {world.local_world_size} are not drawn: {unknown}"
    # The masks of other tasks cannot be set again here.
    srun = None if world.is_task else placement.srun_line(plan.bindings, world.nnodes or 1)
    if srun:
        yield ""
        yield f"the same with srun: {srun}"
    yield from _lines_of_workers(explanation)
    if len(explanation.workers) < world.world_size:
        yield ""
        others = "tasks" if world.is_task else "launchers"
        yield f"other {others} print a line for each of their ranks; all of it with --explain=json"
    if explanation.warnings:
        yield ""
        yield from (f"warning: {errors.one_line(warning)}" for warning in explanation.warnings)


def _lines_of_workers(explanation: Explanation) -> Iterator[str]:
    """The command and variables that all workers share, then those of each worker."""
    blocks = []
    for worker in explanation.workers:
        changes = environment.changes(worker.environ, explanation.launch.environ)
        if changes.get("MASTER_PORT") == "0":
            changes["MASTER_PORT"] = "assigned by the hub"
        variables = (f"    {name}={value}" for name, value in changes.items())
        logs = (
            f"    {name}: {route.file}"
            for name, route in zip(routes.FILES.values(), worker.routes, strict=True)
            if route.file
        )
        blocks.append([f"    {join(worker.command)}", *variables, *logs])
    common = [line for line in blocks[0] if all(line in lines for lines in blocks[1:])]
    if len(blocks) > 1:
        yield from ("", "each worker", *common)
    for worker, lines in zip(explanation.workers, blocks, strict=True):
        yield from ("", starting.worker_line(worker, explanation.launch.node))
        yield from (line for line in lines if len(blocks) == 1 or line not in common)


def _lines_of_sources(resolution: identity.Resolution) -> Iterator[str]:
    managers = ", ".join(manager.name for manager in resolution.managers) or "none"
    yield f"resource manager  {managers}"
    for name, fact in resolution.sources.items():
        value = "unknown" if fact.value is None else fact.value
        yield f"{name:16}  {value!s:20}  {fact.source}"
        for each in fact.rejected:
            if each.value == fact.value:
                continue
            yield f"{'':16}    not {each.value} from {each.source}: {each.why}"
