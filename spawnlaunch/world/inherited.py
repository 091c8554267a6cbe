"""What an outer launcher or a shell profile left: rank variables, MASTER_ADDR and MASTER_PORT.

A stale RANK=0 WORLD_SIZE=1 in a profile would make every task rank 0 of 1. The rank variables are
therefore always replaced by the derived ones. MASTER_ADDR and MASTER_PORT may be the user's wish,
as in a batch script that exports them for all its tasks.

One launcher for all ranks keeps them where no rank variable beside them contradicts. Several cannot
ask each other, and must decide alike. A batch script's RANK=$SLURM_PROCID is right in rank 0 and in
no other rank, so nothing that names a rank, a node or a size counts there: an address is judged by
itself, and a port is kept. Where a task's parent shows what srun gave to all tasks, what was set
below it is one task's own, and is not taken.
"""

from __future__ import annotations

from spawnlaunch.records import NamedTuple
from spawnlaunch.world.facts import Environ, Fact, Lost, port

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

RANKS = {
    "RANK": "rank",
    "WORLD_SIZE": "world_size",
    "LOCAL_RANK": "local_rank",
    "LOCAL_WORLD_SIZE": "local_world_size",
    "NODE_RANK": "node_rank",
    "GROUP_RANK": "node_rank",
    "GROUP_WORLD_SIZE": "nnodes",
}
RUN_ID = "TORCHELASTIC_RUN_ID"  # every launcher sets it in all its workers, and no user does
# TORCHELASTIC_ERROR_FILE is not among them: a user may name the file that receives the error.
OUTER = (RUN_ID, "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS")
AGENT_STORE = "TORCHELASTIC_USE_AGENT_STORE"
MASTER = {"MASTER_ADDR": "master_addr", "MASTER_PORT": "master_port"}

LEFT = "left by an outer launcher: what stands beside it contradicts"
BELOW = (
    "which was set below srun, where each task may set another; for all of them type "
    "export {name}={value} before srun, or {flag} {value}"
)


class Inherited(NamedTuple):
    """What is taken of MASTER_ADDR and MASTER_PORT, and what is not."""

    kept: Mapping[str, Fact] = {}  # by variable
    left: tuple[str, ...] = ()  # variables that an outer launcher left, as NAME=value
    lost: Mapping[str, str] = {}  # why the master's other variables are not taken
    own: Mapping[str, str] = {}  # likewise, of what this task may have and no other


def has_master(environ: Environ) -> bool:
    """Whether there is anything that launchers could disagree about."""
    return any(environ.get(name) for name in MASTER)


def of_one_launcher(environ: Environ, facts: dict[str, Fact]) -> Inherited:
    """For the launcher of all ranks."""
    left = stale(environ, facts)
    if not left:
        return Inherited(_master(environ))
    return Inherited({}, left, {name: LEFT for name in MASTER if environ.get(name)})


def of_several(
    environ: Environ, given: Environ, facts: dict[str, Fact], host: str | None
) -> Inherited:
    """For launchers that cannot ask each other. `host` is that of rank 0, where it is certain.

    Only what is equal in all of them counts: what was `given` to all, the sizes, and the host.
    """
    left = stale(environ, facts)
    if given.get(RUN_ID):
        return Inherited({}, left, {name: LEFT for name in MASTER if environ.get(name)})
    alone = facts["world_size"].value == facts["local_world_size"].value
    kept, lost = _master(given), {}
    why = _why_useless(kept["MASTER_ADDR"].value, host, alone) if "MASTER_ADDR" in kept else ""
    if why:
        del kept["MASTER_ADDR"]
        lost["MASTER_ADDR"] = why
    own = {
        name: BELOW.format(name=name, value=environ[name], flag=f"--{question.replace('_', '-')}")
        for name, question in MASTER.items()
        if environ.get(name) and environ[name] != given.get(name)
    }
    return Inherited(kept, left, {**lost, **own}, own)


def _why_useless(addr: str, host: str | None, alone: bool) -> str:
    """Why an address cannot be that of rank 0, as far as its text shows; "" where it can."""
    if is_loopback(addr):
        return "" if alone else "by which every node would mean itself"
    is_number = ":" in addr or all(part.isdigit() for part in addr.split("."))
    if host is None or is_number or _names(addr, host):
        return ""
    return (
        f"which does not name rank 0's host {host}; if it is another name of that host, "
        f"type --master-addr {addr}"
    )


def is_loopback(host: str) -> bool:
    """Whether every machine means itself by this name.

    >>> is_loopback("127.0.1.1"), is_loopback("localhost"), is_loopback("node127")
    (True, True, False)
    """
    return host in ("localhost", "::1") or host.startswith(("127.", "localhost."))


def _names(addr: str, host: str) -> bool:
    """Whether an address is a host's name, with or without a domain or an interface.

    >>> [_names(addr, "node1") for addr in ("node1.site", "node1i", "node1-ib.site", "ib-node1")]
    [True, True, True, True]
    >>> [_names(addr, "node1.site") for addr in ("node1", "node10", "node2", "mynode1")]
    [True, False, False, False]
    """
    name, short = addr.partition(".")[0].lower(), host.partition(".")[0].lower()
    before, found, after = name.partition(short or name)
    return found == short and not before[-1:].isalnum() and not after[:1].isdigit()


def with_lost(facts: dict[str, Fact], it: Inherited, environ: Environ) -> dict[str, Fact]:
    """The facts, with what was replaced among their lost candidates."""
    result = dict(facts)
    ranks = {name: LEFT for name in RANKS if it.left and name in environ}
    for name, why in {**ranks, **it.lost}.items():
        question = RANKS.get(name) or MASTER[name]
        fact = result[question]
        result[question] = fact._replace(lost=(*fact.lost, Lost(environ[name], name, why)))
    return result


def warnings(facts: dict[str, Fact], it: Inherited, environ: Environ) -> list[str]:
    """What is to be said of what all have."""
    lost = _replaced(it.lost, facts, environ)
    left = [*it.left, *(f"{name}={environ[name]}" for name, why in lost.items() if why == LEFT)]
    said = [f"replaced what an outer launcher or a profile left: {' '.join(left)}"] if left else []
    return said + [
        f"replaced {name}={environ[name]}, {why}"
        for name, why in lost.items()
        if why != LEFT and name not in it.own
    ]


def own_warnings(facts: dict[str, Fact], it: Inherited, environ: Environ) -> tuple[str, ...]:
    """What is to be said of what this task may have and no other."""
    own = _replaced(it.own, facts, environ)
    return tuple(f"replaced {name}={environ[name]}, {why}" for name, why in own.items())


def _replaced(lost: Mapping[str, str], facts: dict[str, Fact], environ: Environ) -> dict[str, str]:
    """Those of the lost variables that have another value now, and not by a flag."""
    return {
        name: why
        for name, why in lost.items()
        if not facts[MASTER[name]].source.startswith("--")
        and str(facts[MASTER[name]].value) != environ[name]
    }


def stale(environ: Environ, facts: dict[str, Fact]) -> tuple[str, ...]:
    """The inherited variables, as NAME=value, that contradict what was derived."""
    names = [
        name
        for name, question in RANKS.items()
        if environ.get(name) and str(facts[question].value) not in ("None", environ[name])
    ]
    names += [name for name in OUTER if environ.get(name)]
    if environ.get(AGENT_STORE, "False") != "False":
        names.append(AGENT_STORE)
    return tuple(f"{name}={environ[name]}" for name in names)


def _master(environ: Environ) -> dict[str, Fact]:
    """MASTER_ADDR and MASTER_PORT, where they are set. Raises UsageError where the port is none."""
    addr, number = environ.get("MASTER_ADDR"), port("MASTER_PORT")(environ)
    kept = {"MASTER_ADDR": Fact(addr, "MASTER_ADDR") if addr else None, "MASTER_PORT": number}
    return {name: fact for name, fact in kept.items() if fact}
