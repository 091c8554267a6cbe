"""A Kubernetes Indexed Job: one launcher per pod, which knows its index and nothing else.

    JOB_COMPLETION_INDEX=1

Source: kubernetes.io, "Jobs", completion mode Indexed. The number of pods and the host of the first
one (job-0.subdomain, with a headless service) are known to the job's manifest only.
"""

from spawnlaunch.world.facts import number
from spawnlaunch.world.manager import NODES, Manager

INDEX = "JOB_COMPLETION_INDEX"

MANAGER = Manager(
    name="Kubernetes Indexed Job",
    kind=NODES,
    needs=(INDEX,),
    table={"node_rank": (number(INDEX),)},
)
