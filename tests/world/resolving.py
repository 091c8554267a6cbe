"""What a launcher would make of flags and an environment, asked in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spawnlaunch.base import say
from spawnlaunch.cli import parsing
from spawnlaunch.world.identity import Capacity, Resolution
from spawnlaunch.world.resolve import prepare_host, resolve_world
from tests.support.launching import REPORTER
from tests.support.slurm_variables import OWN_JOB

HOSTNAME = "node1.cluster"
# Node 1 of 2 of a step of Slurm with a launcher on each.
STEP_OF_TWO = {
    "SLURM_JOB_ID": OWN_JOB, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NODELIST": "node[0-1]",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_PROCID": "1", "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1", "SLURMD_NODENAME": "node1",
}  # fmt: skip
NO_DEVICES = Capacity(devices=0, cpus=2)


def resolve(
    flags: str | Sequence[str],
    environ: Mapping[str, str],
    hostname: str = HOSTNAME,
    capacity: Capacity = NO_DEVICES,
) -> Resolution:
    """The world of a launcher on this host. Raises UsageError."""
    words = flags.split() if isinstance(flags, str) else flags
    request = parsing.parse([*words, str(REPORTER)], environ, "python")
    return resolve_world(request, environ, hostname, capacity)


def explained(flags: str, environ: Mapping[str, str]) -> Resolution:
    """Likewise with --explain, for which each rank says all, and after a look at this machine."""
    resolution, held = prepare_host(resolve(f"--explain {flags}", environ), HOSTNAME)
    if held is not None:
        held.lock.close()
    return resolution


def of_job(found: Resolution) -> tuple[str, ...]:
    """The texts of the notices about the job."""
    return tuple(text for scope, text in found.notices if scope == say.JOB)
