"""Warnings about mistakes that are common on clusters, one line each with its remedy.

They are the same on every node of the job, so only rank 0 looks for them.
"""

from __future__ import annotations

from spawnlaunch.cli import values
from spawnlaunch.world import identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def find_warnings(it: identity.Evidence, world: identity.World) -> Iterator[str]:
    """Yield the warnings about a launch inside a manager's job."""
    if it.environ.get("SLURM_JOB_ID") and world.mode == identity.LOCAL:
        yield from _of_a_shell_elsewhere(it, world)
    if world.is_task and world.local_world_size > 1 and not it.request.virtual_local_rank:
        yield from _of_few_devices(it, world.local_world_size)


def _of_few_devices(it: identity.Evidence, tasks: int) -> Iterator[str]:
    """Warn where a task sees fewer devices than its node has tasks, such as its own device only."""
    devices, vendor = it.capacity.devices, it.capacity.vendor
    if not 0 < devices < tasks or vendor == "google":  # torch has no index of a TPU
        return
    kind = next((kind for kind, maker in values.KINDS.items() if maker == vendor), "cuda")
    lists = [name for name in it.capacity.devices_by.split(", ") if name in it.environ]
    by = f" ({', '.join(f'{name}={it.environ[name]}' for name in lists)} here)" if lists else ""
    if devices == 1:
        seen, fails = f"each task sees one device{by}", "not 0"
    else:
        seen, fails = (
            f"each of the {tasks} tasks on this node sees {devices} devices{by}",
            (f"above {devices - 1}"),
        )
    yield (
        f"{seen}, so {kind}:LOCAL_RANK fails where LOCAL_RANK is {fails}; --virtual-local-rank "
        "makes LOCAL_RANK 0 in every task, and shows it one device"
    )


def _of_a_shell_elsewhere(it: identity.Evidence, world: identity.World) -> Iterator[str]:
    from spawnlaunch.world.managers import slurm

    if it.manager is slurm.SHELL and slurm.is_outside(it.environ, it.hostname):
        from spawnlaunch.world import refusals

        n = world.local_world_size
        line = refusals.launcher_per_node(it.request, it.manager, it.environ, n)
        yield (
            f"this shell is on {it.hostname}, which is no node of its job "
            f"({slurm.JOB_NODELIST}={it.environ[slurm.JOB_NODELIST]}); to run there, type {line}"
        )
