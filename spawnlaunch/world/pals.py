"""HPE PALS: mpiexec on Aurora and Polaris, one process per rank.

    PALS_RANKID=2  PALS_LOCAL_RANKID=0  PALS_LOCAL_SIZE=2  PALS_NODEID=1  PALS_APID=<uuid>
    PMI_SIZE=4 (with PMI) and no size of its own

Under Slurm the cray_shasta plugin sets PALS_* as well; Slurm comes first in the order for it.
Source: flux-framework/flux-coral2 src/shell/plugins/cray_pals.c; the user guides of ALCF.
"""

from spawnlaunch.world.facts import number, text
from spawnlaunch.world.manager import TASKS, Manager

RANK = "PALS_RANKID"
LOCAL_RANK = "PALS_LOCAL_RANKID"
LOCAL_SIZE = "PALS_LOCAL_SIZE"
NODE = "PALS_NODEID"
APPLICATION = "PALS_APID"

MANAGER = Manager(
    name="HPE PALS",
    kind=TASKS,
    needs=(RANK, LOCAL_RANK),
    table={
        "rank": (number(RANK), number("PMI_RANK")),
        "world_size": (number("PMI_SIZE"),),
        "local_rank": (number(LOCAL_RANK), number("PMI_LOCAL_RANK")),
        "local_world_size": (number(LOCAL_SIZE), number("PMI_LOCAL_SIZE")),
        "node_rank": (number(NODE),),
        "job": (text(APPLICATION),),
    },
    starter=lambda n, _, command: f"mpiexec --ppn {n} {command}",
)
