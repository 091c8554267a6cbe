"""Find where the launchers of several nodes meet, and what each knows before they do.

One launcher, the hub, assigns all ranks once all launchers have connected. So no launcher needs
its node rank, nodes may have different numbers of workers, and MASTER_PORT is a free port. The
hub is node rank 0's launcher where node ranks are known, else the launcher with the endpoint's
address.
"""

from __future__ import annotations

from spawnlaunch.base import errors
from spawnlaunch.world import host, identity, master, ranks
from spawnlaunch.world.gathering import Gathering

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from spawnlaunch.cli import flags

PORTS_TRIED = 8
RETURN_TIMEOUT_S = 60.0  # enough for a user to see that a launcher is lost, and to start it again
TOLD = "told by the hub, once all have come"


def find(
    it: identity.Evidence,
    facts: identity.Facts,
    job: identity.Fact | None,
    starter: identity.Manager | None,
) -> Gathering:
    """Return how the launchers of this job meet; `job` is the authority's name of it.

    `starter` is the manager that has started this launcher, even where flags overrule its answers.
    """
    request, address, nnodes = it.request, facts["master_addr"], facts["nnodes"]
    is_static = _is_static(request)
    at, master_port = _ports(it, facts["master_port"], job, is_static)
    is_told = address.source == "--master-addr" or is_static
    known = ranks.known_node_rank(it)
    node_rank = -1 if known is None else known.value
    least = (
        it.typed("--nnodes", request.nnodes and request.nnodes.least) or it.manager.least_nodes()
    )
    return_s = _return_s(request, starter)
    return Gathering(
        host=address.value,
        port=at,
        ports=PORTS_TRIED if is_static or request.rdzv_endpoint is None else 1,
        is_hub=_is_hub(it, facts, node_rank),
        node_rank=node_rank,
        least=(least or nnodes).value,
        most=nnodes.value,
        spares=request.spares,
        expected=_expected(it),
        returns=return_s is None,
        return_s=request.return_timeout_s if return_s is None else return_s,
        again=_is_started_again(it),
        name=_own_name(it),
        master_addr=address.value if is_told and node_rank == 0 else "",
        master_port=master_port,
    )


def _ports(
    it: identity.Evidence, port: identity.Fact, job: identity.Fact | None, is_static: bool
) -> tuple[int, int]:
    """Return the port where the launchers meet, and MASTER_PORT: FREE unless the user named it."""
    if it.request.master_port == master.FREE and it.request.rdzv_endpoint is None:
        return (master.port_of(job.value) if job else master.STATIC_PORT), master.FREE
    is_hubs = port.source == "--rdzv-endpoint" and not is_static
    if is_hubs or not identity.is_named(port, it.environ) or port.value == master.FREE:
        return port.value, master.FREE
    # Launchers may know the host by several names. Another launch on it meets at another port.
    at = master.port_of(job.value if job else str(port.value))
    return at + (at == port.value), port.value


def _is_started_again(it: identity.Evidence) -> bool:
    """Whether a manager restarts this launcher if it fails, as Kubernetes restarts pods."""
    return it.manager.kind == identity.NODES or identity.POD in it.environ


def _is_static(request: flags.Request) -> bool:
    """Whether --rdzv-endpoint is where rank 0 listens, and not where the launchers meet.

    torchrun's backend is static where the user gives none; then the user gives node ranks.
    """
    is_default = request.rdzv_backend is None and request.node_rank is not None
    is_static = is_default or request.rdzv_backend == "static"
    return request.rdzv_endpoint is not None and is_static


def _is_hub(it: identity.Evidence, facts: identity.Facts, node_rank: int) -> bool | None:
    """Whether this launcher is the hub; None: the first launcher on this machine that listens."""
    request = it.request
    word = (request.rdzv_conf or {}).get("is_host")
    if word is not None:
        return bool(word)
    by_address = request.rdzv_endpoint is not None and request.rdzv_backend == "c10d"
    if node_rank >= 0 and not by_address:
        return node_rank == 0
    name: str = facts["master_addr"].value
    if host.is_here(name, it.hostname):
        return None
    return False


def _return_s(request: flags.Request, starter: identity.Manager | None) -> float | None:
    """Seconds to wait for a lost launcher; 0: none; None: its pod's manager restarts it.

    srun and mpirun start a task once, so that waiting for it would waste the allocation.
    """
    said_s, why = request.return_timeout_s, ""
    if not request.max_restarts:
        why = "without restarts none may; use --max-restarts N as well"
    elif starter and starter.kind == identity.TASKS and not starter.gives_ranks:
        why = f"{starter.name} starts its tasks once; leave --return-timeout out"
    if why:
        if said_s:
            what = "is the time for a lost launcher to come back, and"
            raise errors.UsageError(f"--return-timeout {said_s:g} {what} {why}")
        return 0.0
    if starter and starter.kind == identity.NODES and said_s != 0:
        return None
    return RETURN_TIMEOUT_S if said_s is None else said_s


def _own_name(it: identity.Evidence) -> str:
    """The name of this node, as in the manager's list of nodes."""
    name = it.manager.host_name()
    return _short([name.value if name else it.hostname])[0]


def _expected(it: identity.Evidence) -> tuple[str, ...]:
    """The names of all nodes, where the manager lists them and no flag overrules it."""
    hosts = it.manager.hosts() or it.manager.node_names()
    if hosts is None or ranks.is_overruled(it):
        return ()
    return tuple(_short(hosts.value))


def _short(names: Iterable[str]) -> list[str]:
    """The names without their domains; addresses stay as they are."""
    return [n if n[:1].isdigit() else n.partition(".")[0] for n in names]


def told_later(facts: identity.Facts, gathering: Gathering) -> identity.Facts:
    """Mark the facts that the hub assigns later as unknown or provisional."""
    found = dict(facts)
    if gathering.is_elastic:
        for name in ("rank", "world_size", "nnodes"):
            found[name] = found[name]._replace(source=f"{found[name].source}; {TOLD}")
    if facts["node_rank"].value is None:
        # Rank 0 prints the job's warnings: so only a launcher that may be the hub is given rank 0.
        rank = 0 if gathering.is_hub is not False else facts["local_world_size"].value
        found["rank"] = identity.Fact(rank, f"not known yet; {TOLD}")
        address = found["master_addr"]
        found["master_addr"] = address._replace(source=f"{address.source}, unless {TOLD}")
        found["node_rank"] = identity.Fact(None, f"{facts['node_rank'].source}; {TOLD}")
    if not gathering.master_port:
        why = f"a free port of node rank 0; {TOLD}"
        found["master_port"] = facts["master_port"]._replace(value=master.FREE, source=why)
    return found


def described(gathering: Gathering) -> str:
    """Return where the launchers meet, in words for --explain."""
    here = {True: ", at this launcher", None: ", at the first launcher here that listens"}
    n = f"{gathering.least} to {gathering.most}" if gathering.is_elastic else f"{gathering.most}"
    spares = f" and {gathering.spares} spares" if gathering.spares else ""
    last = f"-{gathering.port + gathering.ports - 1}" if gathering.ports > 1 else ""
    at = f"{gathering.host}:{gathering.port}{last}{here.get(gathering.is_hub, '')}"
    alike = "" if gathering.is_elastic else "; ranks are as shown if each has as many workers"
    lost = ""
    if gathering.return_s != 0:
        within = "join_timeout" if gathering.return_s is None else f"{gathering.return_s:g} s"
        lost = f"; one that is lost may come back within {within}"
    return f"the launchers meet at {at}: {n} nodes{spares}{alike}{lost}"
