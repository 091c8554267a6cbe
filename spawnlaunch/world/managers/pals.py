"""HPE PALS: mpiexec on Aurora and Polaris, one process per rank.

    PALS_RANKID=2  PALS_LOCAL_RANKID=0  PALS_LOCAL_SIZE=2  PALS_NODEID=1  PALS_APID=<uuid>
    PMI_SIZE=4 (with PMI) and no size of its own

Under Slurm the cray_shasta plugin sets PALS_* as well; Slurm comes first in the order for it.
Source: flux-framework/flux-coral2 src/shell/plugins/cray_pals.c; the user guides of ALCF.
"""

from __future__ import annotations

from spawnlaunch.world.model import TASKS, Manager

MANAGER = Manager(
    "HPE PALS",
    TASKS,
    needs=("PALS_RANKID", "PALS_LOCAL_RANKID"),
    starter="mpiexec --ppn {n} {command}",
    rank=("PALS_RANKID", "PMI_RANK"),
    world_size="PMI_SIZE",
    local_rank=("PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"),
    local_world_size=("PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"),
    node_rank="PALS_NODEID",
    job="PALS_APID",
)
