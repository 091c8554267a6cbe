"""Kubeflow.

kubeflow/trainer pkg/constants/constants.go; the variables are torchrun's flags.
"""

import os

from tests.world.recorded import Case, Found, Refused

KUBEFLOW = {
    "PET_NNODES": "2",
    "PET_NPROC_PER_NODE": "4",
    "PET_NODE_RANK": "1",
    "PET_MASTER_ADDR": "mnist-node-0-0.mnist",
    "PET_MASTER_PORT": "29400",
    "JOB_COMPLETION_INDEX": "1",
}
CASES = [
    Case(
        "two pods",
        KUBEFLOW,
        Found(
            "node",
            {
                "rank": (4, "node rank x PET_NPROC_PER_NODE"),
                "world_size": 8,
                "local_world_size": (4, "PET_NPROC_PER_NODE"),
                "node_rank": (1, "PET_NODE_RANK"),
                "nnodes": (2, "PET_NNODES"),
                "master_addr": ("mnist-node-0-0.mnist", "PET_MASTER_ADDR"),
                "master_port": (29400, "PET_MASTER_PORT"),
                "run_id": "none",
            },
        ),
    ),
    Case(
        "--nproc before PET_NPROC_PER_NODE",
        KUBEFLOW,
        Found("node", {"local_world_size": (3, "--nproc"), "world_size": 6}, "--nproc 3"),
    ),
    Case(
        "a worker for each CPU",
        {**KUBEFLOW, "PET_NPROC_PER_NODE": "cpu"},
        Found(
            "node",
            {"local_world_size": (len(os.sched_getaffinity(0)), "PET_NPROC_PER_NODE cpu")},
        ),
    ),
    Case(
        "a number of nodes that runs backwards",
        {**KUBEFLOW, "PET_NNODES": "4:1"},
        Refused("PET_NNODES: '4:1' runs backwards"),
    ),
    Case(
        "no number of workers",
        {**KUBEFLOW, "PET_NPROC_PER_NODE": "many"},
        Refused("PET_NPROC_PER_NODE: 'many' is not a number of workers"),
    ),
    Case(
        "no port",
        {**KUBEFLOW, "PET_MASTER_PORT": "99999"},
        Refused("PET_MASTER_PORT='99999' is not a port"),
    ),
    Case(
        "this pod alone",
        KUBEFLOW,
        Found(
            "local",
            {"rank": 0, "world_size": 4, "nnodes": 1, "master_addr": "127.0.0.1"},
            "--standalone",
        ),
    ),
    Case(
        "one node where there are two",
        KUBEFLOW,
        Refused("PET_NNODES says 2 nodes, each with a launcher; leave --nnodes out", "--nnodes 1"),
    ),
]
