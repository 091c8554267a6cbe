"""Kubeflow Trainer: one launcher per pod, told by torchrun's own variables.

    PET_NNODES=2  PET_NPROC_PER_NODE=4  PET_NODE_RANK=1
    PET_MASTER_ADDR=job-node-0-0.job  PET_MASTER_PORT=29400

Source: kubeflow/trainer pkg/constants/constants.go.
"""

from spawnlaunch.world.facts import number, text
from spawnlaunch.world.manager import NODES, Manager

NNODES = "PET_NNODES"
NPROC = "PET_NPROC_PER_NODE"
NODE_RANK = "PET_NODE_RANK"
ADDR = "PET_MASTER_ADDR"
PORT = "PET_MASTER_PORT"

MANAGER = Manager(
    name="Kubeflow",
    kind=NODES,
    needs=(NNODES, NODE_RANK, ADDR, PORT),
    table={
        "node_rank": (number(NODE_RANK),),
        "nnodes": (number(NNODES),),
        "nproc": (text(NPROC),),
        "master_addr": (text(ADDR),),
        "master_port": (number(PORT),),
    },
)
