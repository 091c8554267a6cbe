"""Where the launchers of several nodes meet, and what each knows of the others before they have.

One of them, the hub, tells all their ranks once all are there. So nobody has to be told its node
rank, nodes may have unlike numbers of workers, and MASTER_PORT is a port that is free. The hub is
node rank 0's launcher where node ranks are known, else the one that has the endpoint's address.
"""

from __future__ import annotations

from spawnlaunch.world import host
from spawnlaunch.world.gathering import Gathering
from spawnlaunch.world.master import FREE, STATIC_PORT, port_of
from spawnlaunch.world.model import (
    NODES,
    Evidence,
    Fact,
    Facts,
    is_named,
)
from spawnlaunch.world.ranks import is_overruled, known_node_rank

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

PORTS_TRIED = 8
TOLD = "told by the hub, once all have come"


def find(it: Evidence, facts: Facts, job: Fact | None) -> Gathering:
    """How the launchers of this job meet; `job` is the authority's name of it."""
    request, address, port = it.request, facts["master_addr"], facts["master_port"]
    if request.master_port == FREE and request.rdzv_endpoint is None:
        port = Fact(port_of(job.value) if job else STATIC_PORT, "--master-port 0")
    is_kept = is_named(port, it.environ) and port.source != "--rdzv-endpoint" and port.value
    at = port.value
    if is_kept:  # it is the workers'
        at = port_of(job.value if job else f"{address.value}:{port.value}")
        at += at == port.value
    most, known = facts["nnodes"].value, known_node_rank(it)
    least = it.typed("--nnodes", request.nnodes and request.nnodes.least) or it.ask("least_nodes")
    node_rank = None if known is None else known.value
    return Gathering(
        host=address.value,
        port=at,
        ports=1 if request.rdzv_endpoint is not None else PORTS_TRIED,
        is_hub=_is_hub(it, facts, node_rank),
        node_rank=-1 if node_rank is None else node_rank,
        least=most if least is None else least.value,
        most=most,
        spares=request.spares,
        expected=_expected(it),
        returns=it.manager is not None and it.manager.kind == NODES and request.max_restarts > 0,
        name=_own_name(it),
        master_addr=address.value if address.source == "--master-addr" and node_rank == 0 else "",
        master_port=port.value if is_kept else FREE,
    )


def _is_hub(it: Evidence, facts: Facts, node_rank: int | None) -> bool | None:
    """Whether the launchers meet at this one; None: at the first of those here that listens."""
    request = it.request
    word = (request.rdzv_conf or {}).get("is_host")
    if word is not None:
        return bool(word)
    by_address = request.rdzv_endpoint is not None and request.rdzv_backend == "c10d"
    if node_rank is not None and not by_address:
        return bool(node_rank == 0)
    name: str = facts["master_addr"].value
    if host.is_here(name, it.hostname):
        return None
    return False


def _own_name(it: Evidence) -> str:
    """This node, as the manager's list of nodes has it."""
    name = it.ask("own_host")
    return _short([name.value if name else it.hostname])[0]


def _expected(it: Evidence) -> tuple[str, ...]:
    """The nodes by name, where the manager lists them and all of them are meant."""
    hosts = it.ask("hosts") or it.ask("node_names")
    if hosts is None or is_overruled(it):
        return ()
    return tuple(_short(hosts.value))


def _short(names: Iterable[str]) -> list[str]:
    """Without their domains; addresses stay."""
    return [n if n[:1].isdigit() else n.partition(".")[0] for n in names]


def told_later(facts: Facts, gathering: Gathering) -> Facts:
    """The facts as far as they are known before the launchers have met."""
    found = dict(facts)
    if gathering.is_elastic:
        for name in ("rank", "world_size", "nnodes"):
            found[name] = found[name]._replace(source=f"{found[name].source}; {TOLD}")
    if facts["node_rank"].value is None:
        # What rank 0 says for all is said by a launcher that may be the hub, and by no other.
        rank = 0 if gathering.is_hub is not False else facts["local_world_size"].value
        found["rank"] = Fact(rank, f"not known yet; {TOLD}")
        address = found["master_addr"]
        found["master_addr"] = address._replace(source=f"{address.source}, unless {TOLD}")
        found["node_rank"] = Fact(None, f"{facts['node_rank'].source}; {TOLD}")
    if not gathering.master_port:
        why = f"a free port of node rank 0; {TOLD}"
        found["master_port"] = facts["master_port"]._replace(value=FREE, source=why)
    return found


def described(gathering: Gathering) -> str:
    """Where the launchers meet, for --explain."""
    here = {True: ", at this launcher", None: ", at the first launcher here that listens"}
    n = f"{gathering.least} to {gathering.most}" if gathering.is_elastic else f"{gathering.most}"
    spares = f" and {gathering.spares} spares" if gathering.spares else ""
    at = f"{gathering.host}:{gathering.port}{here.get(gathering.is_hub, '')}"
    alike = "" if gathering.is_elastic else "; ranks are as shown if each has as many workers"
    return f"the launchers meet at {at}: {n} nodes{spares}{alike}"
