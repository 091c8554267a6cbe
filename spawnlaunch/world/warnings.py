"""Warnings about mistakes that are common on clusters, one line each with its remedy."""

from __future__ import annotations

from spawnlaunch.cli import values
from spawnlaunch.world import identity, inherited, ranks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def find_warnings(it: identity.Evidence, world: identity.World) -> Iterator[str]:
    """Yield the warnings that are the same on every node of the job: only rank 0 looks for them."""
    if it.manager.has_steps and world.mode == identity.LOCAL:
        yield from _of_a_shell_elsewhere(it, world)
    if world.is_task and world.local_world_size > 1 and not it.request.virtual_local_rank:
        yield from _of_few_devices(it, world.local_world_size)


def find_node_warnings(it: identity.Evidence, world: identity.World) -> Iterator[str]:
    """Yield the warnings of each node's launcher, before it waits for those of the others."""
    if it.manager.gives_ranks:
        yield from inherited.taken_for_a_pods(world, it.environ)
    if it.manager.kind == identity.HOSTS and world.mode == identity.NODE:
        yield from _of_waiting_hosts(it)


def _of_few_devices(it: identity.Evidence, tasks: int) -> Iterator[str]:
    """Warn where a task sees fewer devices than its node has tasks, such as its own device only."""
    devices, vendor = it.capacity.devices, it.capacity.vendor
    if not 0 < devices < tasks or vendor == "google":  # torch has no index of a TPU
        return
    kind = next((kind for kind, maker in values.KINDS.items() if maker == vendor), "cuda")
    lists = [name for name in it.capacity.devices_by.split(", ") if name in it.environ]
    by = f" ({', '.join(f'{name}={it.environ[name]}' for name in lists)} here)" if lists else ""
    seen, fails = f"each task sees one device{by}", "not 0"
    if devices > 1:
        seen = f"each of the {tasks} tasks on this node sees {devices} devices{by}"
        fails = f"above {devices - 1}"
    yield (
        f"{seen}, so {kind}:LOCAL_RANK fails where LOCAL_RANK is {fails}; --virtual-local-rank "
        "makes LOCAL_RANK 0 in every task, and shows it one device"
    )


def _of_a_shell_elsewhere(it: identity.Evidence, world: identity.World) -> Iterator[str]:
    """Warn where a job's shell, as salloc's on a login node, is on no node of its job."""
    from spawnlaunch.world import refusals
    from spawnlaunch.world.managers import slurm

    if isinstance(it.manager, slurm.Shell) and it.manager.is_outside(it.hostname):
        line = refusals.launcher_per_node(it.request, it.manager, world.local_world_size)
        yield (
            f"this shell is on {it.hostname}, which is not a node of its job "
            f"({slurm.JOB_NODELIST}={it.environ[slurm.JOB_NODELIST]}); to run there, run {line}"
        )


def _of_waiting_hosts(it: identity.Evidence) -> Iterator[str]:
    """Warn on a host that is first in a job's list of hosts, or not in it: it waits for others."""
    request, hosts, node_rank = it.request, it.manager.hosts(), ranks.known_node_rank(it)
    by_flags = (request.nnodes, request.node_rank, request.rdzv_endpoint, request.master_addr)
    if hosts is None or any(value is not None for value in by_flags):
        return
    listed = f"{it.manager.name} lists {len(hosts.value)} hosts ({hosts.source})"
    alone = "for this machine alone use --standalone"
    if node_rank is None:
        if not any(name[:1].isdigit() or ":" in name for name in hosts.value):  # may be this host's
            yield (
                f"{listed}, and none has this one's name, {it.hostname}: this launcher waits for "
                f"one on each of the others; {alone}"
            )
    elif node_rank.value == 0:
        from spawnlaunch.world import refusals

        line = refusals.launcher_per_node(request, it.manager, 1)
        yield (
            f"{listed}, and this launcher waits for one on each of the others; to start them all "
            f"from here, run {line}; {alone}"
        )
