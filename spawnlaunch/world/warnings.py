"""Warnings about mistakes that are common on clusters, one line each with its remedy."""

from __future__ import annotations

from collections.abc import Iterator

from spawnlaunch.base import say
from spawnlaunch.cli import values
from spawnlaunch.world import identity, inherited, ranks


def find_notices(evidence: identity.Evidence, world: identity.World) -> Iterator[say.Notice]:
    """Yield the notices about the job, for rank 0 alone, and those that each node prints."""
    manager, request = evidence.manager, evidence.request
    if world.rank == 0 or request.explain:  # only these print them
        if manager.has_steps and world.mode == identity.LOCAL:
            yield from say.notices(say.JOB, _of_a_shell_elsewhere(evidence, world))
        if world.is_task and world.local_world_size > 1 and not request.virtual_local_rank:
            yield from say.notices(say.JOB, _of_few_devices(evidence, world.local_world_size))
    if manager.gives_ranks:
        yield from say.notices(say.NODE, inherited.taken_for_a_pods(world, evidence.environ))
    if manager.kind == identity.HOSTS and world.mode == identity.NODE:
        yield from say.notices(say.NODE, _of_waiting_hosts(evidence))


def _of_few_devices(evidence: identity.Evidence, tasks: int) -> Iterator[str]:
    """Warn where a task sees fewer devices than its node has tasks, such as its own device only."""
    devices, vendor = evidence.capacity.devices, evidence.capacity.vendor
    if not 0 < devices < tasks or vendor == "google":  # torch has no index of a TPU
        return
    kind = next((kind for kind, maker in values.KINDS.items() if maker == vendor), "cuda")
    lists = [name for name in evidence.capacity.devices_by.split(", ") if name in evidence.environ]
    by = (
        f" ({', '.join(f'{name}={evidence.environ[name]}' for name in lists)} here)"
        if lists
        else ""
    )
    message, fails = f"each task sees one device{by}", "not 0"
    if devices > 1:
        message = f"each of the {tasks} tasks on this node sees {devices} devices{by}"
        fails = f"above {devices - 1}"
    yield (
        f"{message}, so {kind}:LOCAL_RANK fails where LOCAL_RANK is {fails}; --virtual-local-rank "
        "makes LOCAL_RANK 0 in every task, and shows it one device"
    )


def _of_a_shell_elsewhere(evidence: identity.Evidence, world: identity.World) -> Iterator[str]:
    """Warn where a job's shell, as salloc's on a login node, is on no node of its job."""
    from spawnlaunch.world import refusals
    from spawnlaunch.world.managers import slurm

    shell, here = evidence.manager, evidence.hostname
    if isinstance(shell, slurm.Shell) and shell.is_outside(here):
        line = refusals.launcher_per_node(evidence.request, shell, world.local_world_size)
        nodes = f"{slurm.JOB_NODELIST}={shell.environ[slurm.JOB_NODELIST]}"
        yield (
            f"this shell is on {here}, which is not a node of its job ({nodes}); to run there, run "
            f"{line}"
        )


def _of_waiting_hosts(evidence: identity.Evidence) -> Iterator[str]:
    """Warn on a host that is first in a job's list of hosts, or not in it: it waits for others."""
    request, manager, hosts = evidence.request, evidence.manager, evidence.manager.hosts()
    by_flags = (request.nnodes, request.node_rank, request.rdzv_endpoint, request.master_addr)
    if hosts is None or request.no_gang or any(value is not None for value in by_flags):
        return
    listed = f"{manager.name} lists {len(hosts.value)} hosts ({hosts.source})"
    standalone = "for this machine alone use --standalone"
    node_rank = ranks.known_node_rank(evidence)
    has_address = any(name[:1].isdigit() or ":" in name for name in hosts.value)  # maybe ours
    if node_rank is None and not has_address:
        yield (
            f"{listed}, and none has this one's name, {evidence.hostname}: this launcher waits "
            f"for one on each of the others; {standalone}"
        )
    if node_rank is not None and node_rank.value == 0:
        from spawnlaunch.world import refusals

        line = refusals.launcher_per_node(request, manager, 1)
        yield (
            f"{listed}, and this launcher waits for one on each of the others; to start them all "
            f"from here, run {line}; {standalone}"
        )
