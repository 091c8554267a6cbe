"""The table of flags, and Request, the record of their values, which `cli` hands on.

A row of the table is a field of Request: the name of the flag, the word for its value in --help,
the reader of that value, the default, and the help. The command line, its errors, --help and the
check for flags that need a launcher all use these rows; a new flag is one row, and its use.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from spawnlaunch.base import cpuset, records
from spawnlaunch.cli import values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias, TypeVar

    T = TypeVar("T")

# A flag, the text of its value (None: it has none), and the flag or variable as the user wrote it.
FlagValue: TypeAlias = "tuple[Flag, str | None, str]"

# Words that name a program of spawnlaunch, where no file has that name: see programs.py.
PROGRAMS = ("bench", "check", "report", "scripts", "top", "train")
# The command in lines to run, as the user wrote it: the script works where PATH has it, and the
# module wherever the package is installed.
SCRIPT = "spawnlaunch"
HERE = SCRIPT if sys.argv[0].rpartition("/")[2] == SCRIPT else f"python -m {SCRIPT}"
GRACE_S = 30.0  # from SIGTERM to SIGKILL; torchrun's default
# The longest default grace after a failure on several nodes: ranks that wait in a collective for a
# dead one cannot end by themselves, and use up the whole grace.
FAILURE_GRACE_S = 10.0
LOST_AFTER_S = 10.0
RESTART_WINDOW_S = 3600.0
# Wrong use, which no further attempt corrects, and "saved, start me again later" (EX_TEMPFAIL),
# which is a message to the manager that preempts the job.
NO_RESTART = frozenset({2, 75})
DUMP, KILL = "dump", "kill"  # the values of --on-hang
# The argument with a script's local rank: torch.distributed.launch of torch 2 writes a hyphen, that
# of torch 1 an underscore.
LOCAL_RANK_ARGS = {"none": "", "hyphen": "--local-rank", "underscore": "--local_rank"}

# The sections of --help
WORKERS, BINDING, NODES = "workers", "binding", "several nodes"
ENDING, OUTPUT = "failures, time limits, hangs", "output"


class Flag(records.NamedTuple):
    """A row of the table."""

    section: str
    name: str
    shown: str  # the word for its value in --help; empty: it takes none
    read: Callable[[str], Any] | Mapping[str, Any]  # reader of its value, or the value of each word
    default: Any
    bare_value: Any  # its value where none is given; None: it needs one, which may be the next word
    help: str
    also: tuple[str, ...]  # other spellings; in all of them an underscore is as good as a hyphen
    needs_parent: bool  # only a launcher that stays above its workers can serve it
    field: str  # the field of Request with its value; a time's field ends in its unit


_rows: list[Flag] = []


def _flag(
    section: str,
    name: str,
    shown: str,
    read: Callable[[str], T] | Mapping[str, T] | tuple[T, ...],
    default: T,
    help: str,
    *,
    bare_value: T | None = None,
    also: tuple[str, ...] = (),
    needs_parent: bool = False,
) -> T:
    """Add a row; return the field's default. A tuple in `read` has words as their own values."""
    field = name.strip("-").replace("-", "_") + ("_s" if shown == "SECONDS" else "")
    if isinstance(read, tuple):
        read = {str(word): word for word in read}
    _rows.append(
        Flag(section, name, shown, read, default, bare_value, help, also, needs_parent, field)
    )
    return default


def _switch(
    section: str, name: str, help: str, *, also: tuple[str, ...] = (), needs_parent: bool = False
) -> bool:
    """Add the row of a flag without a value; return the field's default."""
    return _flag(
        section, name, "", {}, False, help, bare_value=True, also=also, needs_parent=needs_parent
    )


# Flags that are no field of Request: the first three ask for a page, the others are part of the
# worker's command.
# fmt: off
_switch("", "--help", "show this page; -h: only the names of the flags", also=("-h",))
_switch("", "--version", "show the versions of this, Python, torch and Slurm")
_flag("", "--completion", "", ("bash", "zsh", "fish"), "",
      'print what a shell needs to complete flags: eval "$(spawnlaunch --completion bash)"')
_switch(WORKERS, "-m", "the script is a module, as in python -m", also=("--module",))
_switch(WORKERS, "--no-python",
        "the script is a program to run by itself, without Python in front")
# fmt: on


class Page(Exception):
    """A page for --help, --version, --completion or --explain, in place of a launch.

    The flag's reader raises it, and `entry` prints it.
    """


class NoWords(Exception):
    """The command has no arguments; the text is a short help, which `entry` prints."""


class Instead(Exception):
    """Another program of spawnlaunch runs in place of a launch; `args`: module and arguments."""


class Program(records.NamedTuple):
    """The program that every worker runs."""

    kind: str  # "script", "module", "program" (run without Python) or "bundled"
    target: str  # path of script or program, or module name; "bundled": the user's word for it
    args: tuple[str, ...]  # passed on verbatim


# fmt: off
class Request(records.NamedTuple):
    """The user's request; no field is derived from the machine."""

    program: Program
    python: str  # interpreter of the workers
    typed_flags: tuple[FlagValue, ...] = ()  # the user's flags, and those that variables give
    sources: Mapping[str, str] = {}  # by a flag's name: its other spelling, or the variable
    notes: tuple[str, ...] = ()  # warnings about torchrun's flags that do nothing here

    nproc: int | str | None = _flag(
        WORKERS, "--nproc", "N", values.nproc, None,
        "workers on this machine: a number, gpu, xpu, hpu or npu (one per visible device of that "
        "kind), cpu (one per allowed CPU) or auto (gpu where there is one, else cpu); default 1",
        also=("--nproc-per-node",))
    role: str = _flag(
        WORKERS, "--role", "NAME", str, "default", "ROLE_NAME of this node's workers")
    preload: tuple[str, ...] = _flag(
        WORKERS, "--preload", "MODULES", values.modules, (),
        "import these once (torch,numpy), and fork the workers from there: they share the import "
        "and its memory", needs_parent=True)
    oversubscribe: bool = _switch(
        WORKERS, "--oversubscribe", "allow more workers than visible GPUs")
    virtual_local_rank: bool = _switch(
        WORKERS, "--virtual-local-rank",
        "LOCAL_RANK=0 in every worker, and one visible GPU each")
    local_rank_arg: str = _flag(
        WORKERS, "--local-rank-arg", "", LOCAL_RANK_ARGS, "",
        "for scripts written for torch.distributed.launch: put --local-rank=N (hyphen) or "
        "--local_rank=N (underscore) before the script's own arguments; default none")

    bind: values.Policy = _flag(
        BINDING, "--bind", "HOW", values.bind, values.Policy(),
        "auto (default): exclusive shares of whole cores next to the rank's device; node, socket, "
        "exclusive, core-complex, none (torchrun's words); or CPUs for each local rank: "
        "48-55:56-63, or masks: 0xff,0xff00", also=("--numa-binding",))
    reserve_cpus: cpuset.CpuSet | str = _flag(
        BINDING, "--reserve-cpus", "LIST", values.reserve, values.DEFAULT.reserve,
        "CPUs that no rank gets: a list, or first-per-l3")
    smt: bool = _flag(
        BINDING, "--smt", "", {"on": True, "off": False}, True,
        "on (default): both hardware threads of a core; off: one of each")
    threads: int | None = _flag(
        BINDING, "--threads", "N", values.positive, None, "at most N cores for each rank")
    mem_bind: str | None = _flag(
        BINDING, "--mem-bind", "", values.MEM_BINDS, None,
        "memory next to the rank's CPUs: preferred (default, unless numactl or the like has set a "
        "policy), bind (never elsewhere), none")
    widen: bool = _switch(
        BINDING, "--widen",
        "use all CPUs of the job's control group, also those that an inherited mask (taskset, "
        "srun) leaves out; if that group has the whole machine, the mask stays")

    nnodes: values.NodeCount | None = _flag(
        NODES, "--nnodes", "N", values.nnodes, None,
        "number of nodes, one launcher on each; MIN:MAX: as many as join, also while it runs")
    spares: int = _flag(
        NODES, "--spares", "K", values.whole, 0,
        "K more nodes wait to take a lost one's place (with --max-restarts)", needs_parent=True)
    node_rank: int | None = _flag(
        NODES, "--node-rank", "N", values.whole, None,
        "rank of this node, from 0; default: by the order of the nodes' names")
    master_addr: str | None = _flag(
        NODES, "--master-addr", "HOST", values.master, None, "where rank 0 runs (MASTER_ADDR)")
    master_port: int | None = _flag(
        NODES, "--master-port", "PORT", values.port, None,
        "the port at which rank 0 listens (MASTER_PORT); by hand the default is 29500")
    master_suffix: str | None = _flag(
        NODES, "--master-suffix", "TEXT", str, None,
        "text to add to the derived host name: i turns node7 into node7i, .hsn into node7.hsn")
    standalone: bool = _switch(
        NODES, "--standalone", "this machine alone, even inside a job of several nodes")
    rdzv_endpoint: values.HostPort | None = _flag(
        NODES, "--rdzv-endpoint", "HOST[:PORT]", values.endpoint, None,
        "where the launchers meet; with --node-rank, where rank 0 listens; default port 29400")
    rdzv_backend: str | None = _flag(
        NODES, "--rdzv-backend", "", ("static", "c10d"), None,
        "torchrun's: static (rank 0 listens at the endpoint) or c10d (the launchers meet there)")
    rdzv_id: str | None = _flag(
        NODES, "--rdzv-id", "ID", values.name, None, "name of the run (TORCHELASTIC_RUN_ID)")
    rdzv_conf: Mapping[str, str] | None = _flag(
        NODES, "--rdzv-conf", "K=V,...", values.rendezvous, None,
        "torchrun's: join_timeout (600 s for all to come), last_call_timeout (30 s for more than "
        "MIN), is_host (1: they meet at this launcher)")
    local_addr: str | None = _flag(
        NODES, "--local-addr", "HOST", values.host, None,
        "this node's address for the other nodes; with one node MASTER_ADDR; default: the address "
        "from which it reached the hub")
    lost_after_s: float | None = _flag(
        NODES, "--lost-after", "SECONDS", values.seconds, None,
        f"a node out of reach for this long is lost; default {LOST_AFTER_S:g}", needs_parent=True)
    return_timeout_s: float | None = _flag(
        NODES, "--return-timeout", "SECONDS", values.seconds, None,
        "for a lost launcher to be started again, with --max-restarts, where too few nodes are "
        "left; default 60, in pods join_timeout, under srun and mpirun 0", needs_parent=True)
    token_file: str | None = _flag(
        NODES, "--token-file", "FILE", values.path, None,
        "a secret that all launchers of the run share (or SPAWNLAUNCH_TOKEN)", needs_parent=True)
    no_gang: bool = _switch(
        NODES, "--no-gang",
        "the launchers do not meet; a failure on one node ends no other", needs_parent=True)
    world_size: int | None = _flag(
        NODES, "--world-size", "N", values.positive, None,
        "number of all ranks, where a resource manager hides it")
    local_world_size: int | None = _flag(
        NODES, "--local-world-size", "N", values.positive, None,
        "number of ranks on this node, where a resource manager hides it")
    rewrite_slurm_env: bool = _switch(
        NODES, "--rewrite-slurm-env",
        "give each worker the Slurm variables that a task of srun in its place would have; the "
        "default in a step, not in a shell of a job")
    no_rewrite_slurm_env: bool = _switch(
        NODES, "--no-rewrite-slurm-env",
        "in a step, let the workers inherit SLURM_PROCID and the like of their launcher's one task")

    grace_s: float = _flag(
        ENDING, "--grace", "SECONDS", values.seconds, GRACE_S,
        "time for workers to end after SIGTERM, before they are killed; default "
        f"{GRACE_S:g}, under Slurm 25, which is below its own KillWait of 30",
        also=("--shutdown-timeout",), needs_parent=True)
    failure_grace_s: float | None = _flag(
        ENDING, "--failure-grace", "SECONDS", values.seconds, None,
        "the same after another worker has failed; default --grace, with several nodes at most "
        f"{FAILURE_GRACE_S:g}", needs_parent=True)
    max_restarts: int = _flag(
        ENDING, "--max-restarts", "N", values.whole, 0,
        "when a worker fails or a node is lost, stop and restart all workers, up to N times, with "
        "another MASTER_PORT unless you named one", needs_parent=True)
    restart_window_s: float = _flag(
        ENDING, "--restart-window", "SECONDS", values.seconds, RESTART_WINDOW_S,
        "after this long without a failure all N restarts are available again; default "
        f"{RESTART_WINDOW_S:g}, 0: never", needs_parent=True)
    no_restart_status: frozenset[int] = _flag(
        ENDING, "--no-restart-status", "LIST", values.statuses, NO_RESTART,
        "do not restart if the first failure has one of these statuses; default "
        "2 (wrong use), 75 (preempted and saved)", needs_parent=True)
    timeout_s: float = _flag(
        ENDING, "--timeout", "SECONDS", values.seconds, 0.0,
        "time limit of the whole launch: it then ends as by SIGTERM, with status 124",
        needs_parent=True)
    hang_timeout_s: float = _flag(
        ENDING, "--hang-timeout", "SECONDS", values.seconds, 0.0,
        "when no rank has written anything for this long, say where each is; stacks go to files",
        needs_parent=True)
    on_hang: str = _flag(
        ENDING, "--on-hang", "", (DUMP, KILL), DUMP,
        "after a hang is reported: go on (dump, the default), or end the workers with status "
        "124 (kill; --max-restarts restarts them)", needs_parent=True)
    stack_on_usr2: bool = _switch(
        ENDING, "--stack-on-usr2",
        "on SIGUSR2 say where each rank is; the workers do not get the signal", needs_parent=True)
    result: str | None = _flag(
        ENDING, "--result", "FILE", values.path, None, "write how ranks ended, as JSON",
        needs_parent=True)
    record: str | None = _flag(
        ENDING, "--record", "DIR", values.path, None,
        "write what every rank does to this directory; spawnlaunch report DIR draws it",
        needs_parent=True)

    redirects: values.StreamsByRank | None = _flag(
        OUTPUT, "--redirects", "HOW", values.streams, None,
        "write streams to files in --log-dir, and do not show them: 1 stdout, 2 stderr, 3 both, 0 "
        "neither; 0:3,1:1 by local rank, r9:3 by global rank", also=("-r",))
    tee: values.StreamsByRank | None = _flag(
        OUTPUT, "--tee", "HOW", values.streams, None,
        "write files as --redirects does, and show streams too", also=("-t",), needs_parent=True)
    log_dir: str | None = _flag(
        OUTPUT, "--log-dir", "DIR", values.name, None,
        "where the ranks' files go: DIR/RUN/attempt_0/RANK/, or a template with {rank}, "
        "{local_rank}, {node_rank}, {host}, {run}, {restart}; by itself it means --tee 3")
    local_ranks_filter: frozenset[int] = _flag(
        OUTPUT, "--local-ranks-filter", "LIST", values.ranks, frozenset(),
        "show these local ranks only: 0,4-7", needs_parent=True)
    ranks_filter: frozenset[int] = _flag(
        OUTPUT, "--ranks-filter", "LIST", values.ranks, frozenset(),
        "show these global ranks only", needs_parent=True)
    prefix: str = _flag(
        OUTPUT, "--prefix", "", ("auto", "always", "never"), "auto",
        "[RANK] before each line, with several nodes [HOST:RANK]: auto (default) where the world "
        "has several ranks")
    no_prefix: bool = _switch(OUTPUT, "--no-prefix", "the same as --prefix never")
    quiet: bool = _switch(OUTPUT, "--quiet", "print no line for each rank at the start")
    debug: int | None = _flag(
        OUTPUT, "--debug", "RANK", values.whole, None,
        "give this rank the terminal, for breakpoint(); no time limit applies", needs_parent=True)
    explain: str | None = _flag(
        OUTPUT, "--explain", "[=json]", ("text", "json", "svg"), None,
        "start nothing; print every derived value and where it came from; =json for programs, "
        "=svg draws the node",
        bare_value="text")
    sysfs_root: str = _flag(
        OUTPUT, "--sysfs-root", "DIR", str, "/", "with --explain: read another machine's files")
    allowed_cpus: cpuset.CpuSet | None = _flag(
        OUTPUT, "--allowed-cpus", "LIST", cpuset.parse, None,
        "with --explain: plan as if these were the allowed CPUs")
    # fmt: on

    @property
    def flags(self) -> tuple[str, ...]:
        """The user's flags that are fields, each as `--name=value`, for lines that repeat them."""
        return tuple(
            flag.name if text is None else f"{flag.name}={text}"
            for flag, text, _ in self.typed_flags
            if flag.field in self._fields
        )

    @property
    def policy(self) -> values.Policy:
        """The policy of binding, with the values of all flags about it."""
        return self.bind._replace(
            reserve=self.reserve_cpus, smt=self.smt, threads=self.threads
        )

    @property
    def need_parent(self) -> list[str]:
        """The user's flags that only a launcher above its workers can serve.

        --max-restarts=0 is not among them, as it asks for nothing.
        """
        return [
            flag.name
            for flag in FLAGS
            if flag.needs_parent and getattr(self, flag.field) != flag.default
        ]

    @property
    def needs_stacks(self) -> bool:
        """Whether the launcher may have to show where each rank is."""
        return self.hang_timeout_s > 0 or self.stack_on_usr2

    @property
    def is_live(self) -> bool:
        """Whether the launch is planned for this machine, and not for a snapshot of another."""
        return not self.sysfs_root.strip("/")

    @property
    def is_elastic(self) -> bool:
        """Whether the number of nodes may change."""
        return self.nnodes is not None and self.nnodes.least < self.nnodes.most

    @property
    def is_by_hand(self) -> bool:
        """Whether flags give both the number of nodes and this node's rank."""
        return self.nnodes is not None and self.node_rank is not None

    @property
    def wants_launcher(self) -> bool:
        """Whether the user gave a flag that makes sense only for a launcher of workers."""
        fields = (self.nproc, self.nnodes, self.node_rank, self.rdzv_backend, self.rdzv_endpoint)
        return self.standalone or any(value is not None for value in fields)


FLAGS = tuple(_rows)
# Flags by all their spellings, written with hyphens in place of underscores.
SPELLINGS = {name: flag for flag in FLAGS for name in (flag.name, *flag.also)}


def spelt(name: str) -> Flag | None:
    """The flag of spawnlaunch with this spelling; None: there is none."""
    return SPELLINGS.get(name.replace("_", "-"))


def words_of(program: Program) -> tuple[str, ...]:
    """The worker's command as the user wrote it after the flags, for lines to run."""
    mark = {"module": ("-m",), "program": ("--no-python",)}.get(program.kind, ())
    if program.kind == "bundled":
        return ("--", *program.args) if program.args else ()
    return (*mark, program.target, *program.args)
