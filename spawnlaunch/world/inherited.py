"""Variables that an outer launcher or a profile left: ranks, MASTER_ADDR and MASTER_PORT.

A stale RANK=0 WORLD_SIZE=1 in a profile would make every task rank 0 of 1. The derived rank
variables therefore always replace the inherited ones. MASTER_ADDR and MASTER_PORT may be the user's
wish, as in a batch script that exports them for all its tasks.

One launcher for all ranks keeps the two where no inherited rank variable contradicts. Several
launchers cannot ask each other, and must come to the same decision. A batch script's
RANK=$SLURM_PROCID is right in rank 0 and in no other rank, so there no variable of a rank, a node
or a size is considered: MASTER_ADDR is checked by itself, and MASTER_PORT is kept.

A platform exports RANK, WORLD_SIZE and the two in each of its pods, and there RANK is the pod's. A
script, a notebook or a shell in which a user tried something may have all four too, and then no
other pod ever connects.
"""

from __future__ import annotations

from collections.abc import Mapping

from spawnlaunch.base import records
from spawnlaunch.cli import flags, values
from spawnlaunch.world import identity

FOUR = ("RANK", "WORLD_SIZE", *identity.MASTER)
REPLACED_AS_STALE = "left by an outer launcher: what stands beside it contradicts"


class Inherited(records.NamedTuple):
    """The inherited MASTER_ADDR and MASTER_PORT that are kept, and the variables that are not."""

    accepted: Mapping[str, identity.Fact] = {}  # by variable
    stale: tuple[str, ...] = ()  # variables that an outer launcher left, as NAME=value
    rejected: Mapping[str, str] = {}  # MASTER_ADDR or MASTER_PORT -> why it is not kept


def read_inherited(
    evidence: identity.Evidence, facts: identity.Facts, host: identity.Fact | None
) -> Inherited:
    """Sort the inherited variables into kept, stale and rejected ones.

    `host` is that of rank 0, as far as it is known; the manager in the evidence is the authority.
    Several launchers decide only by values that are equal in all of them: the sizes, and the host
    where it is certain.
    """
    environ, manager, mode = evidence.environ, evidence.manager, facts["mode"].value
    if manager.gives_ranks:
        return Inherited()
    stale = _find_stale(environ, facts)
    if stale if mode == identity.LOCAL else environ.get(identity.RUN_ID):
        return Inherited(
            {}, stale, dict.fromkeys(filter(environ.get, identity.MASTER), REPLACED_AS_STALE)
        )
    accepted, rejected = {}, {}
    if port := identity.number(environ, "MASTER_PORT", most=values.MAX_PORT):
        accepted["MASTER_PORT"] = port
    if address := identity.text(environ, "MASTER_ADDR"):
        certain, why = host if manager.knows_host else None, ""
        if mode != identity.LOCAL:
            why = _why_useless(address.value, certain, identity.is_single_node(facts))
        if why:
            rejected["MASTER_ADDR"] = why
        else:
            accepted["MASTER_ADDR"] = address
    return Inherited(accepted, stale, rejected)


def _find_stale(environ: identity.Environ, facts: identity.Facts) -> tuple[str, ...]:
    """The inherited variables, as NAME=value, that contradict what was derived."""
    names = [
        name
        for name, question in identity.RANKS.items()
        if environ.get(name) and str(facts[question].value) not in ("None", environ[name])
    ]
    is_single = (environ.get("RANK"), environ.get("WORLD_SIZE")) == ("0", "1")
    if is_single and facts["mode"].value == identity.LOCAL and names == ["WORLD_SIZE"]:
        names = []  # the only pod of a job, in which users of torchrun start several workers
    names += [name for name in identity.OUTER if environ.get(name)]
    if environ.get(identity.AGENT_STORE) == "False":
        names.remove(identity.AGENT_STORE)
    return tuple(f"{name}={environ[name]}" for name in names)


def _why_useless(addr: str, host: identity.Fact | None, is_single_node: bool) -> str:
    """Return why an address cannot be rank 0's, as far as its text shows; "" where it can."""
    if len(addr.split()) > 1:
        return "which are several addresses; use --master-addr ADDRESS, with one of them"
    if is_loopback(addr):
        return "" if is_single_node else "by which every node would mean itself"
    is_number = ":" in addr or all(part.isdigit() for part in addr.split("."))
    if host is None or is_number or _names(addr, host.value):
        return ""
    return (
        f"which does not name rank 0's host {host.value}; if it is another name of that host, "
        f"use --master-addr {addr}"
    )


def is_loopback(host: str) -> bool:
    """Whether this name or address means the local machine on every machine.

    >>> is_loopback("127.0.1.1"), is_loopback("localhost"), is_loopback("node127")
    (True, True, False)
    """
    name = host.strip("[]")
    return name in ("localhost", "::1") or name.startswith(("127.", "localhost."))


def _names(addr: str, host: str) -> bool:
    """Whether an address names this host, with or without a domain or an interface's affix.

    >>> [_names(addr, "node1") for addr in ("node1.site", "node1i", "node1-ib.site", "ib-node1")]
    [True, True, True, True]
    >>> [_names(addr, "node1.site") for addr in ("node1", "node10", "node2", "mynode1")]
    [True, False, False, False]
    """
    name, short = addr.partition(".")[0].lower(), host.partition(".")[0].lower()
    before, middle, after = name.partition(short or name)
    return middle == short and not before[-1:].isalnum() and not after[:1].isdigit()


def add_rejected(
    facts: identity.Facts, inherited: Inherited, environ: identity.Environ
) -> identity.Facts:
    """Return the facts with the replaced variables among their rejected candidates."""
    result = dict(facts)
    ranks = {
        name: REPLACED_AS_STALE for name in identity.RANKS if inherited.stale and name in environ
    }
    for name, why in {**ranks, **inherited.rejected}.items():
        question = identity.RANKS.get(name) or identity.MASTER[name]
        fact = result[question]
        rejected = (*fact.rejected, identity.Rejected(environ[name], name, why))
        result[question] = fact._replace(rejected=rejected)
    return result


def find_warnings(
    facts: identity.Facts, inherited: Inherited, environ: identity.Environ
) -> list[str]:
    """The warnings about inherited variables that are replaced."""
    stale, lines = list(inherited.stale), []
    for name, why in inherited.rejected.items():
        fact = facts[identity.MASTER[name]]
        if fact.source.startswith(("--", "PET_")) or str(fact.value) == environ[name]:
            continue  # a flag has replaced the variable, or nothing has
        if why == REPLACED_AS_STALE:
            stale.append(f"{name}={environ[name]}")
        else:
            lines.append(f"replaced {name}={environ[name]}, {why}")
    if stale:
        line = f"replaced what an outer launcher or a profile left: {' '.join(stale)}"
        mode = facts["mode"].value
        if identity.RUN_ID not in environ and "WORLD_SIZE" in environ and mode == identity.LOCAL:
            line += "; if they are a pod's, use --nnodes N --node-rank N --master-addr HOST"
        lines.insert(0, line)
    return lines


def why_no_pods(request: flags.Request, environ: identity.Environ) -> str:
    """Return why a platform cannot have set the four variables for a launcher; "" where it may.

    Then MASTER_ADDR is this machine, which other pods cannot reach by that name. Only Kubeflow's
    PyTorchJob sets it so, in the pod with RANK 0, and Kubernetes' own variable shows that. A user
    who gives flags for several nodes means the four.
    """
    by_flags = (request.nnodes, request.node_rank, request.master_addr, request.rdzv_endpoint)
    is_meant = request.nproc is None or request.standalone or any(f is not None for f in by_flags)
    may_be_master = environ.get(identity.POD) and environ["RANK"] == "0"
    is_single = environ["WORLD_SIZE"] == "1"
    if is_meant or may_be_master or is_single or not is_loopback(environ["MASTER_ADDR"]):
        return ""
    return (
        f"{_four(environ)} are taken for what a profile or another launcher left, because "
        "MASTER_ADDR is this machine; unset RANK WORLD_SIZE; if they are a pod's, use "
        "--nnodes N --node-rank N --master-addr HOST"
    )


def taken_for_a_pods(world: identity.World, environ: identity.Environ) -> tuple[str, ...]:
    """Return the warning of each pod's launcher before it waits; no other launcher may be there."""
    if world.mode != identity.NODE or world.nnodes == 1:
        return ()
    return (
        f"{_four(environ)} are taken for a pod's: this is node {world.node_rank} of {world.nnodes},"
        " and waits for the others; if a profile or another launcher left them, unset RANK "
        "WORLD_SIZE, or use --standalone",
    )


def _four(environ: identity.Environ) -> str:
    return " ".join(f"{name}={environ[name]}" for name in FOUR)
