"""Find where the launchers of several nodes meet, and what each knows before they do.

One launcher, the hub, assigns all ranks once all launchers have connected. So no launcher needs
its node rank, nodes may have different numbers of workers, and MASTER_PORT is a free port. The
hub is node rank 0's launcher where node ranks are known, else the launcher with the endpoint's
address.
"""

from __future__ import annotations

from spawnlaunch.base import errors
from spawnlaunch.world import host, identity, master, ranks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from spawnlaunch.cli import flags

PORTS_TRIED = 8
RETURN_TIMEOUT_S = 60.0  # enough for a user to see that a launcher is lost, and to start it again
ASSIGNED = "assigned by the hub, once all launchers have connected"


def find(
    evidence: identity.Evidence,
    facts: identity.Facts,
    job: identity.Fact | None,
    starter: identity.Manager | None,
) -> identity.Gathering:
    """Return how the launchers of this job meet; `job` is the authority's name of it.

    `starter` is the manager that has started this launcher, even where flags overrule its answers.
    """
    request, address, nnodes = evidence.request, facts["master_addr"], facts["nnodes"]
    is_static = _is_static(request)
    at, master_port = _ports(evidence, facts["master_port"], job, is_static)
    is_named = address.source == "--master-addr" or is_static
    known = ranks.known_node_rank(evidence)
    node_rank = -1 if known is None else known.value
    least = (
        evidence.typed("--nnodes", request.nnodes and request.nnodes.least)
        or evidence.manager.least_nodes()
    )
    return_s = _return_s(request, starter)
    name = evidence.manager.host_name()
    hosts = evidence.manager.hosts() or evidence.manager.node_names()
    return identity.Gathering(
        host=address.value,
        named_by=address.source if identity.is_named(address, evidence.environ) else "",
        port=at,
        ports=PORTS_TRIED if is_static or request.rdzv_endpoint is None else 1,
        is_hub=_is_hub(evidence, facts, node_rank),
        node_rank=node_rank,
        least=(least or nnodes).value,
        most=nnodes.value,
        spares=request.spares,
        expected=tuple(_short(hosts.value)) if hosts and not ranks.is_overruled(evidence) else (),
        is_restarted_by_manager=return_s is None,
        return_s=request.return_timeout_s if return_s is None else return_s,
        is_restarted=evidence.manager.kind == identity.NODES or identity.POD in evidence.environ,
        name=_short([name.value if name else evidence.hostname])[0],
        master_addr=address.value if is_named and node_rank == 0 else "",
        master_port=master_port,
    )


def _ports(
    evidence: identity.Evidence, port: identity.Fact, job: identity.Fact | None, is_static: bool
) -> tuple[int, int]:
    """Return the port where the launchers meet, and MASTER_PORT: FREE unless the user named it."""
    if evidence.request.master_port == master.FREE and evidence.request.rdzv_endpoint is None:
        return (master.port_of(job.value) if job else master.STATIC_PORT), master.FREE
    is_hubs = port.source == "--rdzv-endpoint" and not is_static
    if is_hubs or not identity.is_named(port, evidence.environ) or port.value == master.FREE:
        return port.value, master.FREE
    # Launchers may know the host by several names. Another launch on it meets at another port.
    at = master.port_of(job.value if job else str(port.value))
    return at + (at == port.value), port.value


def _is_static(request: flags.Request) -> bool:
    """Whether --rdzv-endpoint is where rank 0 listens, and not where the launchers meet.

    torchrun's backend is static where the user gives none; then the user gives node ranks.
    """
    is_default = request.rdzv_backend is None and request.node_rank is not None
    is_static = is_default or request.rdzv_backend == "static"
    return request.rdzv_endpoint is not None and is_static


def _is_hub(evidence: identity.Evidence, facts: identity.Facts, node_rank: int) -> bool | None:
    """Whether this launcher is the hub; None: the first launcher on this machine that listens."""
    request = evidence.request
    word = (request.rdzv_conf or {}).get("is_host")
    if word is not None:
        return bool(word)
    by_address = request.rdzv_endpoint is not None and request.rdzv_backend == "c10d"
    if node_rank >= 0 and not by_address:
        return node_rank == 0
    name: str = facts["master_addr"].value
    if host.is_here(name, evidence.hostname):
        return None
    return False


def _return_s(request: flags.Request, starter: identity.Manager | None) -> float | None:
    """Seconds to wait for a lost launcher; 0: none; None: its pod's manager restarts it.

    srun and mpirun start a task once, so that waiting for it would waste the allocation.
    """
    typed_s, why = request.return_timeout_s, ""
    if not request.max_restarts:
        why = "without restarts none may; use --max-restarts N as well"
    elif starter and starter.kind == identity.TASKS and not starter.gives_ranks:
        why = f"{starter.name} starts its tasks once; leave --return-timeout out"
    if why:
        if typed_s:
            meaning = "is the time for a lost launcher to come back, and"
            raise errors.UsageError(f"--return-timeout {typed_s:g} {meaning} {why}")
        return 0.0
    if starter and starter.kind == identity.NODES and typed_s != 0:
        return None
    return RETURN_TIMEOUT_S if typed_s is None else typed_s


def _short(names: Iterable[str]) -> list[str]:
    """The names without their domains; addresses stay as they are."""
    return [n if n[:1].isdigit() else n.partition(".")[0] for n in names]


def mark_assigned(facts: identity.Facts, gathering: identity.Gathering) -> identity.Facts:
    """Mark the facts that the hub assigns later as unknown or provisional."""
    assigned = dict(facts)
    if gathering.is_elastic:
        for name in ("rank", "world_size", "nnodes"):
            assigned[name] = assigned[name]._replace(source=f"{assigned[name].source}; {ASSIGNED}")
    if facts["node_rank"].value is None:
        # Rank 0 prints the job's warnings: so only a launcher that may be the hub is given rank 0.
        rank = 0 if gathering.is_hub is not False else facts["local_world_size"].value
        assigned["rank"] = identity.Fact(rank, f"not known yet; {ASSIGNED}")
        address = assigned["master_addr"]
        assigned["master_addr"] = address._replace(source=f"{address.source}, unless {ASSIGNED}")
        assigned["node_rank"] = identity.Fact(None, f"{facts['node_rank'].source}; {ASSIGNED}")
    if not gathering.master_port:
        why = f"a free port of node rank 0; {ASSIGNED}"
        assigned["master_port"] = facts["master_port"]._replace(value=master.FREE, source=why)
    return assigned


def described(gathering: identity.Gathering) -> str:
    """Return where the launchers meet, in words for --explain."""
    here = {True: ", at this launcher", None: ", at the first launcher here that listens"}
    n = f"{gathering.least} to {gathering.most}" if gathering.is_elastic else f"{gathering.most}"
    spares = f" and {gathering.spares} spares" if gathering.spares else ""
    last = f"-{gathering.port + gathering.ports - 1}" if gathering.ports > 1 else ""
    at = f"{gathering.host}:{gathering.port}{last}{here.get(gathering.is_hub, '')}"
    alike = "" if gathering.is_elastic else "; ranks are as shown if each has as many workers"
    returns = ""
    if gathering.return_s != 0:
        within = "join_timeout" if gathering.return_s is None else f"{gathering.return_s:g} s"
        returns = f"; one that is lost may come back within {within}"
    return f"the launchers meet at {at}: {n} nodes{spares}{alike}{returns}"
