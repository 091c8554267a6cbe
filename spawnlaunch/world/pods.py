"""RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in the environment of a launcher: a pod's, or left.

A platform exports the four in each of its pods, and there RANK is the pod's. A script, a notebook
or a shell in which somebody tried something has them too, and then no other pod ever comes.
"""

from __future__ import annotations

from spawnlaunch.world import identity, inherited
from spawnlaunch.world.managers import tables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from spawnlaunch import flags

KUBERNETES = "KUBERNETES_SERVICE_HOST"  # in every pod (kubernetes.io, "Service", "Discovery")


def why_none(request: flags.Request, environ: identity.Environ) -> str:
    """Why the four are no pod's where a launcher is to start workers; "" where they may be.

    MASTER_ADDR is this machine, where other pods find nobody. Only Kubeflow's PyTorchJob sets it so
    in the pod with RANK 0, and is known by Kubernetes' own variable. Who types where the nodes are
    means them.
    """
    typed = (request.nnodes, request.node_rank, request.master_addr, request.rdzv_endpoint)
    by_hand = request.nproc is None or request.standalone or any(t is not None for t in typed)
    may_be_master = environ.get(KUBERNETES) and environ["RANK"] == "0"
    alone = environ["WORLD_SIZE"] == "1"
    if by_hand or may_be_master or alone or not inherited.is_loopback(environ["MASTER_ADDR"]):
        return ""
    return (
        f"{_four(environ)} are taken for what a profile or another launcher left, because "
        "MASTER_ADDR is this machine; type unset RANK WORLD_SIZE; if they are a pod's, type "
        "--nnodes N --node-rank N --master-addr HOST"
    )


def taken(world: identity.World, environ: identity.Environ) -> tuple[str, ...]:
    """What the launcher of each pod says before it waits: nobody else may be there to say it."""
    if world.mode != identity.NODE or world.nnodes == 1:
        return ()
    return (
        f"{_four(environ)} are taken for a pod's: this is node {world.node_rank} of {world.nnodes},"
        " and waits for the others; if a profile or another launcher left them, type unset RANK "
        "WORLD_SIZE, or type --standalone",
    )


def _four(environ: identity.Environ) -> str:
    return " ".join(f"{name}={environ[name]}" for name in tables.PLATFORM.needs)
