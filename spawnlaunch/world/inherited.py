"""What an outer launcher or a shell profile left: rank variables, MASTER_ADDR and MASTER_PORT.

A stale RANK=0 WORLD_SIZE=1 in a profile would make every task rank 0 of 1. The rank variables are
therefore always replaced by the derived ones. MASTER_ADDR and MASTER_PORT may be the user's wish,
as in a batch script that exports them for all its tasks: they are kept where no rank variable
beside them contradicts. What is not known here, as the node rank under some managers, cannot.
"""

from spawnlaunch.world.facts import Environ, Fact, port

RANKS = {
    "RANK": "rank",
    "WORLD_SIZE": "world_size",
    "LOCAL_RANK": "local_rank",
    "LOCAL_WORLD_SIZE": "local_world_size",
    "NODE_RANK": "node_rank",
    "GROUP_RANK": "node_rank",
    "GROUP_WORLD_SIZE": "nnodes",
}
# TORCHELASTIC_ERROR_FILE is not among them: a user may name the file that receives the error.
OUTER = (
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_MAX_RESTARTS",
)
AGENT_STORE = "TORCHELASTIC_USE_AGENT_STORE"


def stale(environ: Environ, facts: dict[str, Fact]) -> list[str]:
    """The inherited variables, as NAME=value, that contradict what was derived."""
    names = [
        name
        for name, question in RANKS.items()
        if environ.get(name) and str(facts[question].value) not in ("None", environ[name])
    ]
    names += [name for name in OUTER if environ.get(name)]
    if environ.get(AGENT_STORE, "False") != "False":
        names.append(AGENT_STORE)
    return [f"{name}={environ[name]}" for name in names]


def master(environ: Environ) -> dict[str, Fact]:
    """MASTER_ADDR and MASTER_PORT, where they are set. Raises UsageError where the port is none."""
    addr, number = environ.get("MASTER_ADDR"), port("MASTER_PORT")(environ)
    kept = {"MASTER_ADDR": Fact(addr, "MASTER_ADDR") if addr else None, "MASTER_PORT": number}
    return {name: fact for name, fact in kept.items() if fact}
