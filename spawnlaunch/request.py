"""What the user asked for, as the command line said it: the value that `cli` hands to `world`."""

from __future__ import annotations

from spawnlaunch.cpuset import CpuSet
from spawnlaunch.records import NamedTuple
from spawnlaunch.values import PREFERRED_MEM, Endpoint, Policy, StreamsByRank

# Spellings of the word that tells a script its local rank: torch.distributed.launch of torch 2
# writes a hyphen, that of torch 1 an underscore.
LOCAL_RANK_ARGS = {"none": "", "hyphen": "--local-rank", "underscore": "--local_rank"}

GRACE_S = 30.0  # from SIGTERM to SIGKILL; torchrun's default
RESTART_WINDOW_S = 3600.0
# Wrong use, which no other attempt mends, and "saved, start me again later" (EX_TEMPFAIL), which
# is for whoever has preempted us.
NO_RESTART = frozenset({2, 75})
DUMP, KILL = "dump", "kill"  # what --on-hang may say


class Program(NamedTuple):
    """What every worker runs."""

    kind: str  # "script", "module", "program" (no Python in front) or "bundled"
    target: str  # path of the script or program, or name of the module; "" for the bundled loop
    args: tuple[str, ...]  # passed on verbatim


class Request(NamedTuple):
    """What the user asked for; nothing here is derived from the machine."""

    nproc: int | str | None  # workers on this machine; "auto", "gpu" or "cpu"; None: not said
    program: Program
    python: str  # interpreter of the workers
    flags: tuple[str, ...] = ()  # as typed, each `--name=value`: for errors that repeat them
    oversubscribe: bool = False
    virtual_local_rank: bool = False
    local_rank_arg: str = "none"  # a key of LOCAL_RANK_ARGS
    standalone: bool = False
    nnodes: int | None = None
    node_rank: int | None = None
    world_size: int | None = None
    local_world_size: int | None = None
    master_addr: str | None = None
    master_port: int | None = None
    master_suffix: str | None = None
    rdzv_backend: str | None = None
    rdzv_endpoint: Endpoint | None = None
    rdzv_id: str | None = None
    rewrite_slurm_env: bool = False
    policy: Policy = Policy()
    mem_bind: str = PREFERRED_MEM
    widen: bool = False
    quiet: bool = False
    sysfs_root: str = "/"
    allowed_cpus: CpuSet | None = None
    preload: tuple[str, ...] = ()  # modules
    redirects: StreamsByRank = StreamsByRank()
    tee: StreamsByRank | None = None
    log_dir: str | None = None
    local_ranks_filter: frozenset[int] = frozenset()  # those that are shown
    ranks_filter: frozenset[int] = frozenset()  # likewise, by global rank; both empty: all are
    no_prefix: bool = False
    grace_s: float = GRACE_S
    max_restarts: int = 0
    restart_window_s: float = RESTART_WINDOW_S  # after which the budget is full again; 0: never
    no_restart_status: frozenset[int] = NO_RESTART  # of a first failure
    timeout_s: float = 0.0  # for the whole launch; 0: none
    hang_timeout_s: float = 0.0  # without output of any rank; 0: for ever
    on_hang: str = DUMP
    stack_on_usr2: bool = False
    result: str | None = None  # file for the outcome of all ranks
    explain: str | None = None  # "text" or "json"
    need_parent: tuple[str, ...] = ()  # flags given that only a launcher that stays can serve

    @property
    def is_standalone(self) -> bool:
        """Whether this machine alone was asked for."""
        return self.standalone or (self.nnodes == 1 and not self.node_rank)

    @property
    def is_by_hand(self) -> bool:
        """Whether the flags alone say which of how many nodes this is."""
        return self.nnodes is not None and self.node_rank is not None

    @property
    def wants_launcher(self) -> bool:
        """Whether a flag was given that makes sense for a launcher of workers only."""
        said = (self.nproc, self.nnodes, self.node_rank, self.rdzv_backend, self.rdzv_endpoint)
        return self.standalone or any(value is not None for value in said)


def words_of(program: Program) -> tuple[str, ...]:
    """The worker's command as the user wrote it behind the flags, for lines to type."""
    mark = {"module": ("-m",), "program": ("--no-python",)}.get(program.kind, ())
    if program.kind == "bundled":
        return ("--", *program.args) if program.args else ()
    return (*mark, program.target, *program.args)
