"""A Kubernetes Indexed Job: one launcher per pod, which knows its index and nothing else.

    JOB_COMPLETION_INDEX=1

Source: kubernetes.io, "Jobs", completion mode Indexed. The number of pods and the host of the first
one (job-0.subdomain, with a headless service) are known to the job's manifest only.
"""

from __future__ import annotations

from spawnlaunch.world.model import NODES, Manager

MANAGER = Manager(
    "Kubernetes Indexed Job",
    NODES,
    needs=("JOB_COMPLETION_INDEX",),
    node_rank="JOB_COMPLETION_INDEX",
    silent={
        "nnodes": "a Kubernetes Indexed Job exports no number of pods, and with --standalone each "
        "pod is a job of its own",
        "node_0_host": "a Kubernetes Indexed Job exports no host of its first pod, which a "
        "headless service makes known as JOB-0.SERVICE",
    },
)
