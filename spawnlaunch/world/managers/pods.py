"""What platforms export in pods and containers: Kubeflow, torch's own variables, Kubernetes."""

from __future__ import annotations

from collections.abc import Callable

from spawnlaunch.base import errors
from spawnlaunch.cli import values
from spawnlaunch.world import identity


class Kubeflow(identity.Manager):
    """A pod of Kubeflow Trainer: one launcher per pod, with torchrun's own variables.

        PET_NNODES=2  PET_NPROC_PER_NODE=4  PET_NODE_RANK=1
        PET_MASTER_ADDR=job-node-0-0.job  PET_MASTER_PORT=29400

    As torchrun's flags, PET_NNODES may be MIN:MAX, and PET_NPROC_PER_NODE auto, gpu or cpu.
    Source: kubeflow/trainer pkg/constants/constants.go; torch/distributed/argparse_util.py.
    """

    name = "Kubeflow"
    kind = identity.NODES
    needs = ("PET_NNODES", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")
    node_rank_from = ("PET_NODE_RANK",)
    master_addr_from = ("PET_MASTER_ADDR",)
    master_port_from = ("PET_MASTER_PORT",)

    def nnodes(self) -> identity.Fact | None:
        return self._flag("PET_NNODES", lambda text: values.nnodes(text).most)

    def least_nodes(self) -> identity.Fact | None:
        return self._flag("PET_NNODES", lambda text: values.nnodes(text).least)

    def nproc(self) -> identity.Fact | None:
        return self._flag(values.PET_NPROC, values.nproc)

    def _flag(self, name: str, read: Callable[[str], int | str]) -> identity.Fact | None:
        """Read a variable with the reader of one of spawnlaunch's flags. Raises UsageError."""
        try:
            return identity.Fact(read(self.environ[name]), name) if self.environ.get(name) else None
        except ValueError as error:
            raise errors.UsageError(f"{name}: {error}") from None


class Platform(identity.Manager):
    """A container with torch's own variables, all four.

        RANK=1  WORLD_SIZE=4  MASTER_ADDR=job-master-0  MASTER_PORT=23456

    One process per rank; with --nproc there is one launcher per container, and RANK is the node's
    rank, as users of torchrun pass it on there. Where TORCHELASTIC_RUN_ID is set as well, an outer
    launcher left the four, and no platform set them.
    Source: torch.distributed, "Environment variable initialization"; Kubeflow's PyTorchJob.
    """

    name = "the platform (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT)"
    kind = identity.TASKS
    needs = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    gives_ranks = True
    rank_from = ("RANK",)
    world_size_from = ("WORLD_SIZE",)
    local_rank_from = ("LOCAL_RANK",)
    local_world_size_from = ("LOCAL_WORLD_SIZE",)
    node_rank_from = ("NODE_RANK", "GROUP_RANK")
    master_addr_from = ("MASTER_ADDR",)
    master_port_from = ("MASTER_PORT",)

    def is_present(self) -> bool:
        return super().is_present() and identity.RUN_ID not in self.environ

    def local_rank(self) -> identity.Fact | None:
        return super().local_rank() or self._if_single(0)

    def local_world_size(self) -> identity.Fact | None:
        return super().local_world_size() or self._if_single(1)

    def _if_single(self, value: int) -> identity.Fact | None:
        """Return `value` for one process per container, which has no local variables."""
        if self.environ.get("LOCAL_RANK") or self.environ.get("LOCAL_WORLD_SIZE"):
            return None
        return identity.Fact(value, "one process per container (LOCAL_RANK is not set)")


class Kubernetes(identity.Manager):
    """A pod of an Indexed Job: one launcher per pod, which knows its index and nothing else.

        JOB_COMPLETION_INDEX=1

    The number of pods and the host of the first one (job-0.subdomain, with a headless service) are
    known to the job's manifest only. Source: kubernetes.io, "Jobs", completion mode Indexed.
    """

    name = "Kubernetes Indexed Job"
    kind = identity.NODES
    needs = node_rank_from = ("JOB_COMPLETION_INDEX",)

    def why_silent(self, question: str) -> str:
        if question == "nnodes":
            return (
                f"a {self.name} exports no number of pods, and with --standalone each pod is a job "
                "of its own"
            )
        return (
            f"a {self.name} exports no host of its first pod, which a headless service makes known "
            "as JOB-0.SERVICE"
        )
