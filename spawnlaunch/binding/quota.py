"""Limit the threads of ranks to their parts of a quota of CPU time.

The kernel throttles a control group that has used up its quota until the period ends
(scheduler/sched-bwc.rst), so a rank with more threads than its part of the quota stands still for
most of the time. Masks stay: a quota limits time, and not the set of CPUs.
"""

from __future__ import annotations

from spawnlaunch.binding import placement
from spawnlaunch.node import cgroup

TYPE_CHECKING = False
if TYPE_CHECKING:
    from spawnlaunch.binding import apply
    from spawnlaunch.cli import flags
    from spawnlaunch.node import hardware
    from spawnlaunch.node.visible import Visible
    from spawnlaunch.world import identity


def limited(
    request: flags.Request,
    node: hardware.Node,
    seen: Visible,
    resolution: identity.Resolution,
    bindings: tuple[apply.Binding, ...],
) -> tuple[tuple[apply.Binding, ...], list[str]]:
    """Reduce the threads of bindings to the quota; return them with a line on what it changes.

    The user's own numbers of threads stay, and the line names those that exceed the quota.
    """
    parts = [_part(request, resolution.world, each) for each in node.quotas]
    part, quota = min(parts, key=lambda each: each[0])
    most = max(1, int(part))
    before = max(binding.threads for binding in bindings)
    told = placement.told_threads(resolution.environ)
    cpus = min(placement.cpus_of(node, each) for each in bindings)
    # `placement.of_threads` already warns of more threads than CPUs.
    beyond = [f"{name}={number}" for name, number in told.items() if most < number <= cpus]
    if request.threads is None:
        bindings = tuple(each._replace(threads=min(each.threads, most)) for each in bindings)
    elif before > most and not told:
        beyond = [f"--threads {request.threads}"]

    effects = []
    nproc, count = resolution.sources.get("local_world_size"), len(node.cpus_to_share)
    words = (" cpu",) if seen.names else (" cpu", " auto")
    if nproc and nproc.source.endswith(words) and node.most_workers < count:
        effects.append(f"{nproc.source} starts {_some(node.most_workers, 'worker')}, not {count}")
    size = resolution.world.local_world_size
    who = "the rank" if part == quota.cpus else f"each of {size} ranks"
    if beyond:
        effects.append(
            f"{' and '.join(beyond)} is more than {_some(most, 'thread')} for {who}, so they are "
            "throttled; leave it out"
        )
    elif before > most and not told:
        effects.append(f"{who} computes with {_some(most, 'thread')}, not {before}")
    if size > 1 and part < 1:
        effects.append(f"{who} has the time of {part:.2g} CPUs, so start fewer")
    if not effects:
        return bindings, []
    time = f"{quota.cpus:.3g} CPU{'' if quota.cpus == 1 else 's'}"
    return bindings, [
        f"the control group has a quota of {time} ({quota.path}): {'; '.join(effects)}"
    ]


def _some(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _part(
    request: flags.Request, world: identity.World, quota: hardware.Quota
) -> tuple[float, hardware.Quota]:
    """The number of CPUs of a quota for each rank, and the quota itself.

    A task divides the quota with the others on its node, unless it is alone in the group.
    """
    size = world.local_world_size
    if world.is_task and size > 1 and request.is_live and cgroup.holds_alone(quota):
        size = 1
    return quota.cpus / size, quota
