"""The settings of a launch on several nodes, from the flags; those of the hub's launcher count."""

from __future__ import annotations

from spawnlaunch.base import errors, machine, records
from spawnlaunch.cli import flags
from spawnlaunch.multinode import messages

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from spawnlaunch.world.identity import Gathering

# The flags that should be equal on all launchers, by the names of Request's fields.
ALIKE = (
    *("nnodes", "spares", "max_restarts", "restart_window_s", "no_restart_status"),
    *("grace_s", "failure_grace_s", "timeout_s", "hang_timeout_s", "on_hang", "lost_after_s"),
    "return_timeout_s",
)

MOST_BEATS = 2000  # per second, of all launchers

# The secret that the launchers of one launch share comes from the first of these: --token-file
# PATH, SPAWNLAUNCH_TOKEN_FILE (such as a Kubernetes Secret), and SPAWNLAUNCH_TOKEN, which srun
# hands on; an environment is readable by its user only (proc(5)).
TOKEN_FILE, TOKEN_TEXT = "SPAWNLAUNCH_TOKEN_FILE", "SPAWNLAUNCH_TOKEN"
LEAST_TOKEN = 16  # bytes
MOST_TOKEN = 4096
MAKE_TOKEN = "head -c 32 /dev/urandom | base64"


class Settings(records.NamedTuple):
    """The numbers of nodes, restarts and seconds that the hub goes by."""

    least: int  # nodes that an epoch needs
    most: int  # nodes that work at once
    spares: int = 0  # nodes that wait beside them
    max_restarts: int = 0
    window_s: float = 0.0  # without a failure, after which no restart counts as used; 0: never
    final: frozenset[int] = frozenset()  # exit statuses of a failure that end the launch
    return_s: float = 0.0  # for lost launchers, and the hub, to come back; 0: they do not
    is_restarted_by_manager: bool = False  # lost launchers are, as Kubernetes restarts pods
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
    launch_name: str = ""  # no other launch has it
    flags: tuple[tuple[str, str], ...] = ()  # with values; they should be equal on all nodes

    @property
    def most_launchers(self) -> int:
        """The largest number of launchers that are expected."""
        return self.most + self.spares

    @property
    def is_elastic(self) -> bool:
        """Whether the launch may go on without a node."""
        return self.least < self.most or self.spares > 0

    @property
    def longest_grace_s(self) -> float:
        return max(self.grace_s, self.failure_grace_s)

    def for_members(self) -> dict[str, Any]:
        """The settings that every member takes over, as fields of its Welcome."""
        fields = self._asdict()
        return {name: fields[name] for name in messages.Welcome._fields if name in fields}


def beat_s(lost_after_s: float, nodes: int) -> float:
    """The seconds between two beats of a launcher.

    Unacknowledged data start the kernel's timeout, so that a beat makes it notice a cut soon. From
    thousands of launchers the hub gets at most MOST_BEATS per second; beyond that the kernel's own
    probes start the timeout (tcp(7)).
    """
    most_s: float = Settings._field_defaults["beat_s"]
    return min(most_s, max(lost_after_s / 10, nodes / MOST_BEATS))


def settings_of(
    request: flags.Request, gathering: Gathering, grace_s: float, failure_grace_s: float | None
) -> Settings:
    """The settings of a launch; `failure_grace_s` None: the same as `grace_s`."""
    conf, lost_after_s = request.rdzv_conf or {}, _lost_after_s(request)
    join_s = float(conf.get("join_timeout", Settings._field_defaults["join_s"]))
    return Settings(
        least=gathering.least,
        most=gathering.most,
        spares=gathering.spares,
        max_restarts=request.max_restarts,
        window_s=request.restart_window_s,
        final=request.no_restart_status,
        return_s=join_s if gathering.return_s is None else gathering.return_s,
        is_restarted_by_manager=gathering.is_restarted_by_manager,
        expected=gathering.expected,
        master_addr=gathering.master_addr,
        master_port=gathering.master_port,
        join_s=join_s,
        last_call_s=float(conf.get("last_call_timeout", Settings._field_defaults["last_call_s"])),
        lost_after_s=lost_after_s,
        beat_s=beat_s(lost_after_s, gathering.most + gathering.spares),
        grace_s=grace_s,
        failure_grace_s=grace_s if failure_grace_s is None else failure_grace_s,
        timeout_s=request.timeout_s,
        ends_hung=request.on_hang == flags.KILL,
        flags=tuple((f"--{name.removesuffix('_s').replace('_', '-')}", _plain(request, name))
                    for name in ALIKE),
    )  # fmt: skip


def _plain(request: flags.Request, name: str) -> str:
    value = getattr(request, name)
    if value is None:
        return "as by default"
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


def secret_token(path: str | None, environ: Mapping[str, str]) -> bytes | None:
    """Return the secret of this launch; None where there is none.

    Raises UsageError for a secret that cannot be used. An empty value, as an unset variable of a
    shell gives, cannot: without a secret anyone with the run's name would be let in.
    """
    source = "--token-file" if path else TOKEN_FILE
    path = path or environ.get(TOKEN_FILE)
    if path == "":
        raise errors.UsageError(
            f"{TOKEN_FILE} is empty, so no secret would be asked for; set it to a file, or unset "
            f"{TOKEN_FILE}"
        )
    if path:
        try:
            return _checked_token(machine.content(path, MOST_TOKEN + 1).strip(), f"{source} {path}")
        except OSError as error:
            raise errors.UsageError(
                f"{source} {path}: {error.strerror}; {MAKE_TOKEN} > {path} makes one, "
                "and all nodes need the same"
            ) from error
    text = environ.get(TOKEN_TEXT)
    return None if text is None else _checked_token(text.strip().encode(), TOKEN_TEXT)


def _checked_token(secret: bytes, source: str) -> bytes:
    if not LEAST_TOKEN <= len(secret) <= MOST_TOKEN:
        raise errors.UsageError(
            f"{source} has {len(secret)} bytes, and must have {LEAST_TOKEN} to {MOST_TOKEN}; "
            f"{MAKE_TOKEN} makes one"
        )
    return secret
