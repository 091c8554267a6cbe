"""A Kubernetes Indexed Job.

kubernetes.io, "Jobs", completion mode Indexed.
"""

from tests.world.recorded import Case, Found, Refused

INDEXED_JOB = {"JOB_COMPLETION_INDEX": "1", "KUBERNETES_SERVICE_HOST": "10.96.0.1"}
CASES = [
    Case(
        "what is not exported, typed",
        INDEXED_JOB,
        Found(
            "node",
            {
                "rank": 2,
                "world_size": 6,
                "node_rank": (1, "JOB_COMPLETION_INDEX"),
                "nnodes": (3, "--nnodes"),
                "master_addr": ("train-0.train", "--master-addr"),
                "master_port": 0,
            },
            "--nproc 2 --nnodes 3 --master-addr train-0.train",
        ),
    ),
    Case("no number of pods", INDEXED_JOB, Refused("type --nnodes N", "--nproc 2")),
    Case(
        "no host of the first pod",
        INDEXED_JOB,
        Refused("JOB-0.SERVICE; type --master-addr HOST", "--nproc 2 --nnodes 3"),
    ),
    Case(
        "each pod alone",
        INDEXED_JOB,
        Found("local", {"rank": 0, "world_size": 2}, "--nproc 2 --standalone"),
    ),
]
