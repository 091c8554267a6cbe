"""Where does each rank sit: for now, an even share of the allowed CPUs."""

from typing import NamedTuple

from spawnlaunch.node import Node, cpuset
from spawnlaunch.world import World


class Binding(NamedTuple):
    """The seat of one worker."""

    local_rank: int
    cpus: frozenset[int]  # empty: not pinned
    threads: int  # for OMP_NUM_THREADS


def seats(nproc: int | str, node: Node) -> int:
    """How many workers a value of --nproc means on this machine."""
    return nproc if isinstance(nproc, int) else node.cpu_count


def plan(node: Node, world: World) -> tuple[Binding, ...]:
    """Split the allowed CPUs evenly and in order; with more workers than CPUs, CPUs are shared."""
    if world.mode == "task":
        return (Binding(world.local_rank, frozenset(), node.cpu_count),)
    n = world.local_world_size
    return tuple(_share(node, i, n) for i in range(n))


def _share(node: Node, i: int, n: int) -> Binding:
    threads = max(1, node.cpu_count // n)
    cpus = sorted(node.cpus_allowed)
    if not cpus:
        return Binding(i, frozenset(), threads)
    if n > len(cpus):
        return Binding(i, frozenset({cpus[i % len(cpus)]}), 1)
    mine = cpus[i * len(cpus) // n : (i + 1) * len(cpus) // n]
    return Binding(i, frozenset(mine), len(mine))


def report_line(rank: int, seat: Binding) -> str:
    """What a person reads at the start: `rank 1  local 1  cpus 1  omp 1`."""
    where = cpuset.format(seat.cpus) if seat.cpus else "not pinned"
    return f"rank {rank}  local {seat.local_rank}  cpus {where}  omp {seat.threads}"
