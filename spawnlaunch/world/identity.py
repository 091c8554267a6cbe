"""The records of this room: Fact, Manager, Evidence, World, Gathering and Resolution.

A Fact is a value with its source and its rejected candidates. A Manager has a method for each
question that it answers from the environment.
"""

from __future__ import annotations

from spawnlaunch.base import cpuset, errors, reading, records, say
from spawnlaunch.cli import values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any, TypeAlias

    from spawnlaunch.cli import flags

Environ: TypeAlias = "Mapping[str, str]"
Facts: TypeAlias = "dict[str, Fact]"  # by the names of World's fields

TASK, NODE, LOCAL = "task", "node", "local"  # modes

# Kinds of managers, by which processes they start:
NONE = "none"  # there is no manager
TASKS = "tasks"  # one process per rank (or, with --nproc, one launcher per node)
NODES = "nodes"  # one launcher per node or pod, never one process per rank
HOSTS = "hosts"  # nothing: there is a list of hosts, and this is a process on one of them

# The variables of a worker, by the names of World's fields; and those that only launchers set.
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

# A launcher, and no user, sets these in a worker. MARK: the run's unique id, a dot and the rank,
# where the launcher stays above the worker. WITNESS: the worker's own pid, which differs from the
# pid of every process that the worker starts.
MARK, WITNESS = "SPAWNLAUNCH_WORKER", "SPAWNLAUNCH_WITNESS"

POD = "KUBERNETES_SERVICE_HOST"  # in every pod (kubernetes.io, "Service", "Discovery")
WORKER_PID = "its own pid"  # the value of WITNESS until the worker has a pid


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
    """Whether a flag or a variable gave this value, and no rule of spawnlaunch.

    >>> is_named(Fact(29500, "MASTER_PORT"), {"MASTER_PORT": "29500"})
    True
    >>> is_named(Fact(20000, "computed from SLURM_JOB_ID=1"), {"SLURM_JOB_ID": "1"})
    False
    """
    return fact.source.startswith("--") or fact.source in environ


def is_single_node(facts: Facts) -> bool:
    """Whether all ranks are on this node."""
    return bool(facts["world_size"].value == facts["local_world_size"].value)


def first(candidates: Iterable[Fact | None]) -> Fact | None:
    """Return the first candidate that is not None, with the others as its rejected candidates.

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


def number(environ: Environ, *names: str, most: int = 10**reading.MAX_DIGITS) -> Fact | None:
    """The whole number in the first of these variables that is set; the others become rejected.

    Raises UsageError where a variable has any other text: a manager's answer is never guessed.
    """
    facts: list[Fact] = []
    for name in names:
        value = environ.get(name, "").strip()
        if value and not (reading.is_number(value) and int(value) <= most):
            kind = "a port" if most == values.MAX_PORT else "a whole number"
            raise errors.UsageError(
                f"{name}={reading.excerpt(value)} is not {kind}; unset {name}, or correct it"
            )
        if value:
            facts.append(Fact(int(value), name))
    return first(facts)


def text(environ: Environ, *names: str) -> Fact | None:
    """The text in the first of these variables that is set; the others become rejected."""
    texts = [(environ.get(name, "").strip(), name) for name in names]
    return first(Fact(value, name) for value, name in texts if value)


class Manager:
    """A resource manager: the variables that show it, and a method for each question.

    Each method reads the environment of a process that the manager started, directly or not. None:
    the manager does not export the answer.
    """

    name = "no manager"
    kind = NONE
    needs: tuple[str, ...] = ()  # variables that must all be set for the manager to be there
    has_steps = False  # of HOSTS: this is a shell in which tasks can be started
    gives_ranks = False  # the manager itself sets RANK and the like; no outer launcher left them
    knows_host = False  # its `rank_0_host` is certain, where it is not None

    # The variables that answer a question; the first that is set counts.
    rank_from: tuple[str, ...] = ()
    world_size_from: tuple[str, ...] = ()
    local_rank_from: tuple[str, ...] = ()
    local_world_size_from: tuple[str, ...] = ()
    node_rank_from: tuple[str, ...] = ()
    nnodes_from: tuple[str, ...] = ()
    job_from: tuple[str, ...] = ()
    master_addr_from: tuple[str, ...] = ()
    master_port_from: tuple[str, ...] = ()

    def __init__(self, environ: Environ) -> None:
        self.environ = environ

    def is_present(self) -> bool:
        """Whether this manager started the process that has this environment."""
        return all(map(self.environ.get, self.needs))

    def why_silent(self, question: str) -> str:
        """The beginning of an error about a question that has no answer."""
        return f"{self.name} exports no {question.replace('_', ' ')} here"

    def rank(self) -> Fact | None:
        """The rank of this task."""
        return number(self.environ, *self.rank_from)

    def world_size(self) -> Fact | None:
        """The number of tasks."""
        return number(self.environ, *self.world_size_from)

    def local_rank(self) -> Fact | None:
        """The number of this task among those on its node."""
        return number(self.environ, *self.local_rank_from)

    def local_world_size(self) -> Fact | None:
        """The number of tasks on this node."""
        return number(self.environ, *self.local_world_size_from)

    def node_rank(self) -> Fact | None:
        """The number of this node."""
        return number(self.environ, *self.node_rank_from)

    def nnodes(self) -> Fact | None:
        """The number of nodes."""
        return number(self.environ, *self.nnodes_from)

    def job(self) -> Fact | None:
        """Text that is the same in every process of a launch and in no other launch."""
        return text(self.environ, *self.job_from)

    def master_addr(self) -> Fact | None:
        """The address at which ranks meet, where the manager chooses it."""
        return text(self.environ, *self.master_addr_from)

    def master_port(self) -> Fact | None:
        """The port at which ranks meet, where the manager chooses it."""
        return number(self.environ, *self.master_port_from, most=values.MAX_PORT)

    def reserved_port(self) -> Fact | None:
        """A port that the manager keeps free for this step; used where the user names none."""

    def least_nodes(self) -> Fact | None:
        """The number of nodes that is enough to begin."""

    def nproc(self) -> Fact | None:
        """The number of workers that each launcher is to start, or a word of --nproc."""

    def hosts(self) -> Fact | None:
        """All hosts, in the order of their node ranks."""

    def node_names(self) -> Fact | None:
        """All hosts, in any order."""

    def host_name(self) -> Fact | None:
        """The name of this host, as `rank_0_host` and `node_0_host` have it."""

    def rank_0_host(self) -> Fact | None:
        """The host of rank 0."""

    def node_0_host(self) -> Fact | None:
        """The host of node rank 0."""

    def step_devices(self) -> Fact | None:
        """The devices of all tasks on this node: their numbers by PCI address."""

    def masks(self) -> Fact | None:
        """The CPUs that the manager gave to each task on this node, in their order."""

    def default_grace_s(self) -> Fact | None:
        """The seconds that a launcher gives its workers to end where the user has named none."""

    def more_cpus(self, allowed: cpuset.CpuSet, is_free: bool) -> str:
        """Return how to start with more than the allowed CPUs; "" where others have set the mask.

        `is_free`: the control group has CPUs beyond the mask.
        """
        return ""

    def as_task(self, world: World, i: int) -> dict[str, object]:
        """The manager's variables that worker `i` of a launcher would have as a task of its own."""
        return {}

    def launcher_flags(self) -> tuple[str, ...]:
        """The flags that a launcher needs where `start_line` has started it on another node."""
        return ()

    def start_line(self, command: str, n: int) -> str:
        """The line that starts a command `n` times on each node of the job.

        With n = 1 the command is a launcher with workers of its own, else a task per rank.
        """
        return command


class Capacity(records.NamedTuple):
    """The devices and CPUs of this machine that workers may use."""

    devices: int  # number of devices that a worker sees
    cpus: int  # number of allowed CPUs
    devices_by: str = ""  # the variables that hide the other devices, as CUDA_VISIBLE_DEVICES
    vendor: str = ""  # of the devices; "": there are none, or it is not known
    why: str = ""  # why a worker sees no device, though a driver is loaded
    unset: tuple[str, ...] = ()  # the variables without which a worker would see devices
    meant: str = ""  # what to export in place of a variable that is no list of devices
    are_counted: bool = True  # False: there may be devices that spawnlaunch cannot count


class Evidence(records.NamedTuple):
    """The input from which a launcher derives its World."""

    request: flags.Request
    environ: Environ
    hostname: str
    capacity: Capacity
    manager: Manager  # the one that counts: the innermost; of the kind NONE where there is none

    def typed(self, flag: str, value: object) -> Fact | None:
        """Return a flag's value as a Fact, with the flag's name as typed; None where not given."""
        return None if value is None else Fact(value, self.request.sources.get(flag, flag))


CHANCE = "time of the start, and chance"  # the source of a run's name that nothing else gives


class World(records.NamedTuple):
    """The ranks of this launcher's workers, the sizes, and the address of rank 0.

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
        """Whether this process becomes the worker itself, so that no launcher stays above it."""
        return self.mode == TASK

    @property
    def has_several_nodes(self) -> bool:
        """Whether some ranks are on other nodes; `nnodes` alone may be unknown."""
        return self.world_size > self.local_world_size


class Gathering(records.NamedTuple):
    """How the launchers of several nodes meet; the hub then assigns their ranks."""

    host: str  # where they meet
    named_by: str  # the flag or variable that names the host; "": none
    port: int
    ports: int  # number of ports to try, from `port` on: a computed port may be in use
    is_hub: bool | None  # this launcher is the hub; None: the first on this machine that listens
    node_rank: int  # as it was given; -1: by the order of the nodes' names
    least: int  # number of nodes that is enough to begin
    most: int
    spares: int
    expected: tuple[str, ...]  # names of nodes, where all are known
    # The manager of pods restarts a lost launcher; False: only a user does.
    is_restarted_by_manager: bool
    return_s: float | None  # seconds to wait for a lost launcher; 0: none; None: join_timeout
    is_restarted: bool  # the manager restarts this launcher if it fails
    name: str  # of this node
    master_addr: str  # where the user has named one
    master_port: int  # where the user has named one; 0: a free port

    @property
    def is_elastic(self) -> bool:
        """Whether the number of nodes may change."""
        return self.least < self.most


class Resolution(records.NamedTuple):
    """The World, with the source of each value and the notices that come of it."""

    world: World
    sources: Facts
    notices: tuple[say.Notice, ...]
    managers: tuple[Manager, ...]  # the innermost first
    environ: Environ
    exports: Mapping[str, str] = {}  # for the workers' environment, unless the user set them
    gathering: Gathering | None = None  # of several nodes: the hub assigns the final ranks
    # `managers`, and those with some of their variables missing
    mentioned: tuple[Manager, ...] = ()

    def with_notices(self, scope: str, *texts: str) -> Resolution:
        """Return the same with more notices."""
        return self._replace(notices=(*self.notices, *say.notices(scope, texts)))

    # Each answer comes from the innermost manager that has one, even if another has started this
    # process: masks, devices and time limits of an outer manager hold for this process as well.

    def step_devices(self) -> Fact | None:
        """The devices of all tasks on this node: their numbers by PCI address."""
        return next(filter(None, (manager.step_devices() for manager in self.mentioned)), None)

    def masks(self) -> Fact | None:
        """The CPUs that a manager gave to each task on this node, in their order."""
        return next(filter(None, (manager.masks() for manager in self.mentioned)), None)

    def default_grace_s(self) -> Fact | None:
        """The seconds that a launcher gives its workers to end where the user has named none."""
        return next(filter(None, (manager.default_grace_s() for manager in self.mentioned)), None)
