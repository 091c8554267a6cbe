"""Where does each rank sit: for now, an even share of the allowed CPUs."""

from typing import NamedTuple

from spawnlaunch.node import Node, cpuset


class Binding(NamedTuple):
    """The seat of one worker."""

    local_rank: int
    cpus: frozenset[int]  # empty: not pinned
    threads: int  # for OMP_NUM_THREADS


def plan(node: Node, local_world_size: int) -> tuple[Binding, ...]:
    """Split the allowed CPUs evenly and in order; with more workers than CPUs, CPUs are shared."""
    return tuple(_share(node, i, local_world_size) for i in range(local_world_size))


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
