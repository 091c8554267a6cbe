"""The records of who am I: facts, resource managers, what is known at first, and the world.

A fact is a value that knows where it came from, and which candidates it was preferred to. A
manager answers questions from the environment, each by the variables or functions of its table.
"""

from __future__ import annotations

from spawnlaunch import errors, reading, records, values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, TypeAlias

    from spawnlaunch import flags
    from spawnlaunch.world.gathering import Gathering

Environ: TypeAlias = "Mapping[str, str]"
Facts: TypeAlias = "dict[str, Fact]"  # by the names of World's fields
# A reader answers a question from the environment, or says None where the environment does not.
Reader: TypeAlias = "Callable[[Environ], Fact | None]"
Answer: TypeAlias = "str | Reader | tuple[str | Reader, ...]"  # a variable's name, a function, some

TASK, NODE, LOCAL = "task", "node", "local"  # modes

# Kinds of managers, by what they have started where the launcher finds itself:
TASKS = "tasks"  # one process per rank (or, with --nproc, one launcher per node)
NODES = "nodes"  # one launcher per node or pod, never one process per rank
HOSTS = "hosts"  # nothing: there is a list of hosts, and this is a process on one of them

# What tells a worker who it is, by the names of World's fields; and what only outer launchers set.
RANKS = {
    "RANK": "rank",
    "WORLD_SIZE": "world_size",
    "LOCAL_RANK": "local_rank",
    "LOCAL_WORLD_SIZE": "local_world_size",
    "NODE_RANK": "node_rank",
    "GROUP_RANK": "node_rank",
    "GROUP_WORLD_SIZE": "nnodes",
}
MASTER = {"MASTER_ADDR": "master_addr", "MASTER_PORT": "master_port"}
RUN_ID = "TORCHELASTIC_RUN_ID"  # every launcher sets it in all its workers, and no user does
AGENT_STORE = "TORCHELASTIC_USE_AGENT_STORE"
# TORCHELASTIC_ERROR_FILE is not among them: a user may name the file that receives the error.
OUTER = (RUN_ID, "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", AGENT_STORE)

POD = "KUBERNETES_SERVICE_HOST"  # in every pod (kubernetes.io, "Service", "Discovery")
ITS_OWN_PID = "its own pid"  # stands in a worker's variable until it has one

# Questions whose variables hold text. Any other variable is read as a number: for a host in one, as
# of rank_0_host, the table has a function.
TEXTS = ("job", "own_host", "master_addr")


class Rejected(records.NamedTuple):
    """A candidate that was not taken."""

    value: Any
    source: str
    why: str


class Fact(records.NamedTuple):
    """A derived value: `source` is a variable, a flag, or a rule in words."""

    value: Any
    source: str
    rejected: tuple[Rejected, ...] = ()


UNKNOWN = Fact(None, "not exported")


def is_named(fact: Fact, environ: Environ) -> bool:
    """Whether somebody said it, by a flag or a variable, and no rule of ours.

    >>> is_named(Fact(29500, "MASTER_PORT"), {"MASTER_PORT": "29500"})
    True
    >>> is_named(Fact(20000, "computed from SLURM_JOB_ID=1"), {"SLURM_JOB_ID": "1"})
    False
    """
    return fact.source.startswith("--") or fact.source in environ


def first(candidates: Iterable[Fact | None]) -> Fact | None:
    """The first candidate there is; the others are the rejected ones.

    >>> first([None, Fact(4, "SLURM_STEP_NUM_TASKS"), Fact(8, "SLURM_NTASKS")])
    Fact(value=4, source='SLURM_STEP_NUM_TASKS', rejected=(Rejected(value=8, source='SLURM_NTASKS...
    """
    facts = [*filter(None, candidates)]
    rejected: list[Rejected] = []
    for fact in facts:
        if fact.source != facts[0].source:
            why = f"{facts[0].source} comes before it"
            rejected.append(Rejected(fact.value, fact.source, why))
        rejected += fact.rejected
    return facts[0]._replace(rejected=tuple(rejected)) if rejected else next(iter(facts), None)


def number(name: str, environ: Environ, most: int = 10**reading.MAX_DIGITS) -> Fact | None:
    """The whole number in a variable; an empty one is no answer.

    Raises UsageError where anything else stands there: what a manager says is never guessed.
    """
    said = environ.get(name, "").strip()
    if not said:
        return None
    if reading.is_number(said) and int(said) <= most:
        return Fact(int(said), name)
    what = "a port" if most == values.MAX_PORT else "a whole number"
    raise errors.UsageError(
        f"{name}={reading.excerpt(said)} is not {what}; type unset {name}, or correct it"
    )


def text(name: str, environ: Environ) -> Fact | None:
    """The text in a variable; an empty one is no answer."""
    return Fact(said, name) if (said := environ.get(name, "").strip()) else None


class Manager:
    """A resource manager: how it is recognised, and what it answers.

    `answers` may be to: rank, world_size, local_rank, local_world_size, node_rank, nnodes, hosts
    (all of them, in node rank's order), node_names (the same, in any order), least_nodes (that will
    do), rank_0_host, node_0_host, own_host (of this process, as the two call it), job (text that is
    the same in every process of a launch and in no other launch), master_addr, master_port,
    reserved_port (for users who name none), nproc, gpus_per_node and cpus_per_node (where all nodes
    have as many), programs (how many the tasks run), step_devices (of all tasks on this node, their
    numbers by address), masks (of CPUs, that it gave to the tasks on this node, in their order),
    longest_grace_s (before it kills a launcher). Each is asked of its variables and functions in
    their order; what is not there cannot be answered.
    """

    def __init__(
        self,
        name: str,
        kind: str,
        needs: tuple[str, ...],
        unless: Callable[[Environ], bool] | None = None,
        silent: Mapping[str, str] | None = None,
        starter: str = "{command}",
        has_steps: bool = False,
        gives_ranks: bool = False,
        given: Callable[[], Environ | None] | None = None,
        as_task: Callable[[World, int, Environ], dict[str, object]] | None = None,
        wider: Callable[..., str] | None = None,
        **answers: Answer,
    ) -> None:
        self.name = name
        self.kind = kind
        self.needs = needs  # variables that must all be set for the manager to be there
        self.unless = unless  # where it holds, `needs` are set, yet it is not there
        self.silent = silent or {}  # why it has no answer to a question, for the error's text
        self.starter = starter  # the line that starts {command} {n} times on each node
        self.has_steps = has_steps  # of HOSTS: this is a shell in which tasks can be started
        self.gives_ranks = gives_ranks  # RANK and its like are its own, and left by nobody
        self.given = given  # what it gave to all ranks, where a parent shows that
        self.as_task = as_task  # the variables of a launcher's worker as a task of its own has them
        self.wider = wider  # how to start tasks with more CPUs; see `wider` of managers/slurm
        self.answers = answers

    def is_present(self, environ: Environ) -> bool:
        """Whether this manager started the process that has this environment."""
        return all(map(environ.get, self.needs)) and not (self.unless and self.unless(environ))

    def why_silent(self, question: str) -> str:
        """The beginning of an error about a question that has no answer."""
        default = f"{self.name} exports no {question.replace('_', ' ')} here"
        return self.silent.get(question, default)

    def answer(self, question: str, environ: Environ) -> Fact | None:
        """The first answer in the table's order, or None where the manager exports none."""
        asked = self.answers.get(question, ())
        found: list[Fact | None] = []
        for each in asked if isinstance(asked, tuple) else (asked,):
            if not isinstance(each, str):
                if not any(found):  # a rule is asked for only where no variable has answered
                    found.append(each(environ))
            elif question in TEXTS:
                found.append(text(each, environ))
            elif question == "master_port":
                found.append(number(each, environ, values.MAX_PORT))
            else:
                found.append(number(each, environ))
        return first(found)


class Capacity(records.NamedTuple):
    """What this machine has for workers."""

    devices: int  # that a worker sees
    cpus: int  # that are allowed
    devices_by: str = ""  # the variables that show no other device, as CUDA_VISIBLE_DEVICES
    vendor: str = ""  # of the devices; "": none is there, or it is not known


class Evidence(records.NamedTuple):
    """What a launcher knows before it knows who it is."""

    request: flags.Request
    environ: Environ
    hostname: str
    capacity: Capacity
    manager: Manager | None  # the one that counts: the innermost, if any

    def ask(self, question: str) -> Fact | None:
        """The manager's answer, if there is a manager and it has one."""
        return self.manager.answer(question, self.environ) if self.manager else None

    def typed(self, flag: str, value: object) -> Fact | None:
        """What a flag says, by the name that it was given by; None where it was not given."""
        return None if value is None else Fact(value, self.request.sources.get(flag, flag))


class World(records.NamedTuple):
    """The place of this launcher's workers in the job.

    `rank` and `local_rank` are those of its first worker; worker i has `rank + i`.
    """

    mode: str  # TASK, NODE or LOCAL
    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int | None  # None where the resource manager does not say
    nnodes: int | None
    master_addr: str
    master_port: int
    run_id: str
    role_rank: int | None = None  # of its first worker among those of its role; None: all have one
    role_world_size: int | None = None

    @property
    def is_task(self) -> bool:
        """Whether this process becomes its only worker, and nobody stays above it."""
        return self.mode == TASK

    @property
    def has_several_nodes(self) -> bool:
        """Whether there are ranks elsewhere; how many nodes there are is not always told."""
        return self.world_size > self.local_world_size


class Resolution(records.NamedTuple):
    """The world, and how it was found."""

    world: World
    sources: Facts
    warnings: tuple[str, ...]  # about the job: said once, by rank 0, and found for it only
    managers: tuple[Manager, ...]  # the innermost first
    environ: Environ  # with what was missing of Slurm's variables, which workers do not get
    node_warnings: tuple[str, ...] = ()  # warnings that each node says for itself
    exports: Mapping[str, str] = {}  # for the workers' environment, unless the user set them
    gathering: Gathering | None = None  # of several nodes; the world is told then
    around: tuple[Manager, ...] = ()  # also those of whose variables some are missing

    def ask_around(self, question: str) -> Fact | None:
        """The answer of the innermost manager around us that has one.

        Not of the one alone that started us (`Evidence.ask`): masks, devices and limits of time
        hold for this process whoever has started it.
        """
        found = (manager.answer(question, self.environ) for manager in self.around)
        return next(filter(None, found), None)
