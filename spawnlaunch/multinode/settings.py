"""The settings of a launch on several nodes, from the flags. Those of the hub's launcher count."""

from __future__ import annotations

from spawnlaunch.base import records
from spawnlaunch.cli import flags

TYPE_CHECKING = False
if TYPE_CHECKING:
    from spawnlaunch.world.gathering import Gathering

# The flags that should be equal on all launchers, by the names of Request's fields.
ALIKE = (
    *("nnodes", "spares", "max_restarts", "restart_window_s", "no_restart_status"),
    *("grace_s", "failure_grace_s", "timeout_s", "hang_timeout_s", "on_hang", "lost_after_s"),
)

MOST_BEATS = 2000  # per second, of all launchers


class Settings(records.NamedTuple):
    """The numbers of nodes, restarts and seconds that the hub goes by."""

    least: int  # nodes that an epoch needs
    most: int  # nodes that work at once
    spares: int = 0  # nodes that wait beside them
    max_restarts: int = 0
    window_s: float = 0.0  # without a failure, after which no restart counts as used; 0: never
    final: frozenset[int] = frozenset()  # exit statuses of a failure that end the launch
    can_return: bool = False  # somebody may start a lost launcher again
    is_restarted: bool = False  # a manager does, as Kubernetes restarts pods
    expected: tuple[str, ...] = ()  # host names, where all are known
    master_addr: str = ""  # where the user has named one
    master_port: int = 0
    join_s: float = 600.0
    last_call_s: float = 30.0  # for further launchers, once enough are ready for the first epoch
    lost_after_s: float = 10.0
    grace_s: float = 30.0
    failure_grace_s: float = 10.0
    timeout_s: float = 0.0  # of the whole launch; 0: none
    beat_s: float = 5.0
    dead_s: float = 60.0  # without a message, after which a connection counts as lost
    ends_hung: bool = False  # --on-hang kill
    launch: str = ""  # a name that no other launch has
    flags: str = ""  # those that should be equal on all nodes, with their values

    @property
    def total(self) -> int:
        """The largest number of launchers that are expected."""
        return self.most + self.spares

    @property
    def is_elastic(self) -> bool:
        """Whether the launch may go on without a node."""
        return self.least < self.most or self.spares > 0

    @property
    def may_replace_hub(self) -> bool:
        """Whether an earlier hub of this launch may have left nodes that still run workers."""
        return self.is_restarted and self.is_elastic

    @property
    def longest_grace_s(self) -> float:
        return max(self.grace_s, self.failure_grace_s)


def beat_s(lost_after_s: float, nodes: int) -> float:
    """The seconds between two beats of a launcher.

    Unacknowledged data start the kernel's timeout, so that a beat makes it notice a cut soon. From
    thousands of launchers the hub gets at most MOST_BEATS per second; beyond that the kernel's own
    probes start the timeout (tcp(7)).
    """
    most_s: float = Settings._field_defaults["beat_s"]
    return min(most_s, max(lost_after_s / 10, nodes / MOST_BEATS))


def settings_of(
    request: flags.Request,
    gathering: Gathering,
    grace_s: float,
    failure_grace_s: float | None,
    launch: str = "",
) -> Settings:
    """The settings of a launch; `failure_grace_s` None: the same as `grace_s`."""
    conf, lost_after_s = request.rdzv_conf or {}, _lost_after_s(request)
    defaults = Settings._field_defaults
    return Settings(
        least=gathering.least,
        most=gathering.most,
        spares=gathering.spares,
        max_restarts=request.max_restarts,
        window_s=request.restart_window_s,
        final=request.no_restart_status,
        can_return=gathering.can_return,
        is_restarted=gathering.is_restarted,
        expected=gathering.expected,
        master_addr=gathering.master_addr,
        master_port=gathering.master_port,
        join_s=float(conf.get("join_timeout", defaults["join_s"])),
        last_call_s=float(conf.get("last_call_timeout", defaults["last_call_s"])),
        lost_after_s=lost_after_s,
        beat_s=beat_s(lost_after_s, gathering.most + gathering.spares),
        grace_s=grace_s,
        failure_grace_s=grace_s if failure_grace_s is None else failure_grace_s,
        timeout_s=request.timeout_s,
        ends_hung=request.on_hang == "kill",
        launch=launch,
        flags=" ".join(f"--{name.removesuffix('_s').replace('_', '-')}={_plain(request, name)}"
                       for name in ALIKE),
    )  # fmt: skip


def _plain(request: flags.Request, name: str) -> str:
    value = getattr(request, name)
    if value is None:
        return "default"
    if isinstance(value, frozenset):
        return ",".join(map(str, sorted(value)))
    if isinstance(value, tuple):
        return ":".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _lost_after_s(request: flags.Request) -> float:
    """The seconds after which a node counts as lost; torchrun has an interval and a count."""
    conf = request.rdzv_conf or {}
    if request.lost_after_s is not None:
        return max(request.lost_after_s, 1.0)
    interval, attempts = "keep_alive_interval", "keep_alive_max_attempt"
    if interval in conf or attempts in conf:
        return max(float(conf.get(interval, 5)) * float(conf.get(attempts, 3)), 1.0)
    return flags.LOST_AFTER_S
