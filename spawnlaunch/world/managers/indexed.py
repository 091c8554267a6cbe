"""A Kubernetes Indexed Job: one launcher per pod, which knows its index and nothing else.

    JOB_COMPLETION_INDEX=1

The number of pods and the host of the first one (job-0.subdomain, with a headless service) are
known to the job's manifest only.
Source: kubernetes.io, "Jobs", completion mode Indexed.
"""

from __future__ import annotations

from spawnlaunch.world import identity


class Kubernetes(identity.Manager):
    """A pod of an Indexed Job."""

    name = "Kubernetes Indexed Job"
    kind = identity.NODES
    needs = ("JOB_COMPLETION_INDEX",)
    why_no_nnodes = (
        "a Kubernetes Indexed Job exports no number of pods, and with --standalone each pod is a "
        "job of its own"
    )
    why_no_node_0_host = (
        "a Kubernetes Indexed Job exports no host of its first pod, which a headless service makes "
        "known as JOB-0.SERVICE"
    )

    def node_rank(self, environ: identity.Environ) -> identity.Fact | None:
        return identity.number("JOB_COMPLETION_INDEX", environ)


KUBERNETES = Kubernetes()
