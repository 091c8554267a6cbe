"""The messages between launchers, and one table to write them as JSON and to read them.

A record is written as an object of its fields, with its kind under "is". The reader checks each
field against its annotation. It ignores unknown fields, and missing ones have their default: so a
field can be added without a new VERSION.

The way of a message to the hub: Member (its rules) -> Link.send -> Connection.send -> Wire.encode
(JSON and MAC) -> the network -> Connection.turn -> Wire.feed -> Server._received (a stranger's
first message must be a Hello) -> Hub.connected or Hub.received (the rules). The hub's answer goes
Hub -> Server.send -> Connection.send, and at the member Link._received -> Member.received.
"""

from __future__ import annotations

from spawnlaunch.base.records import NamedTuple
from spawnlaunch.outcome.failures import WORDS, Cause

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

    from spawnlaunch.outcome.failures import Code, Count, Name, Rank, Seconds

VERSION = 4

MOST_CHARS = 16384  # of any text in a message, such as a worker's last words
MOST_ITEMS = 65536  # of any list
MOST_NAME = 255  # characters of a host's name (hostname(7)), or of a launch's
MOST_COUNT = 10**9  # of anything that a launch counts: restarts, epochs, ranks, seconds

# Names of numbers by meaning, as those in failures: CHECKS has the bounds of each.
Port = int
Signal = int  # 0: none


class Malformed(ValueError):
    """The text or object that was read is no message."""


# Parts of messages


class Where(NamedTuple):
    """The place of some ranks: the words after the name of one rank, and after several names."""

    singular: str
    plural: str
    ranks: tuple[tuple[Rank, Rank], ...]  # the first and the last of each range


class Reached(NamedTuple):
    """The last collective of a process group that ranks have entered."""

    group: str
    number: Count  # in its group, from 1; 0: none
    name: str
    shape: str  # and type of its tensors, where all ranks must have the same
    place: str  # the user's line at which these ranks are
    age_s: Seconds  # since the first of these ranks entered it
    ranks: tuple[tuple[Rank, Rank], ...]
    is_over: bool  # it has completed for these ranks, which wait for no other in it
    is_backward: bool  # these ranks are within a backward pass


# From a member to the hub


class Hello(NamedTuple):
    """A launcher is ready for workers: preloads imported, old workers ended, a port held."""

    host: Name
    launcher_id: Name  # a name of this launcher alone, the same on all its connections
    nproc: int
    boot: Name = ""  # the machine's boot_id
    given_node_rank: Rank = -1  # where the user or the manager gave one
    port: Port = 0  # free, and held for MASTER_PORT
    addr: Name = ""  # this node's address for others, where the user gave one
    epoch: Count = 0  # the highest that it has seen
    nodes: Count = 0  # number of nodes in that epoch
    last_node_rank: Rank = -1  # in that epoch
    restart_count: Count = 0  # starts of workers after the first
    used: Count = 0  # restarts used, of those that are allowed
    flags: tuple[tuple[str, str], ...] = ()  # with values; they should be equal on all nodes
    launch_name: Name = ""  # the launch that it has been part of
    end_signal: Signal = 0  # the signal to end that it got before it had a hub
    role: str = "default"  # of its workers
    status: Code = 0  # not 0: it cannot take part, and ends with this status
    words: str = ""  # the reason for that
    is_restarted: bool = False  # by a manager if it fails, as Kubernetes restarts pods


class Idle(NamedTuple):
    """All workers of the epoch on this node have ended, and it is ready for others."""

    epoch: int
    port: Port = 0
    outcomes: tuple[tuple[Rank, Code], ...] = ()  # of each worker


class Done(NamedTuple):
    """All workers of this node have ended with 0."""

    epoch: int


class Failed(NamedTuple):
    """A worker has failed."""

    epoch: int
    cause: Cause
    age_s: Seconds = 0.0  # time since the failure, half a round trip included
    early_s: Seconds = 0.0  # the failure may have been so much earlier


class Silent(NamedTuple):
    """No worker of this node has written anything for --hang-timeout; or one has, again."""

    epoch: int
    is_silent: bool = True


class Stacked(NamedTuple):
    """The stacks of this node's workers have been shown."""

    epoch: int
    where: tuple[Where, ...] = ()  # the places of those workers that have reported one
    reached: tuple[Reached, ...] = ()


class Signalled(NamedTuple):
    """This launcher got a signal to end."""

    number: Signal
    is_second: bool = False  # end without grace


class Beat(NamedTuple):
    """A sign that a member is alive; the hub answers with the same number."""

    number: int = 0


# From the hub to a member


class Welcome(NamedTuple):
    """The hub has accepted the Hello; from now on its settings count for this launcher."""

    return_s: Seconds = 0.0  # time for a lost hub to come back; 0: it will not
    is_restarted_by_manager: bool = False  # a hub lost before the first epoch comes back, too
    beat_s: Seconds = 5.0
    dead_s: Seconds = 60.0
    join_s: Seconds = 600.0
    grace_s: Seconds = 30.0
    failure_grace_s: Seconds = 10.0
    differs: tuple[str, ...] = ()  # flags of this launcher that differ from the hub's, in words


class Waiting(NamedTuple):
    """Some launchers are missing. The hub says so every few seconds."""

    names: str  # of the missing launchers
    left_s: Seconds = 0.0
    return_s: Seconds = 0.0  # sent once: time for lost launchers to come back


class Refused(NamedTuple):
    """This launcher cannot take part."""

    why: str


class Start(NamedTuple):
    """Start the workers of an epoch."""

    epoch: int
    node_rank: Rank
    nnodes: Count
    first_rank: int
    world_size: int
    master_addr: Name
    master_port: Port
    restart_count: int = 0  # TORCHELASTIC_RESTART_COUNT
    used: int = 0
    launch_name: Name = ""  # no other launch has it
    role_rank: Rank = -1  # of the first worker, among those of its role
    role_size: Count = 0


class Begun(NamedTuple):
    """An epoch has begun without this node, which waits as a spare or for the next one."""

    epoch: int
    nodes: int
    restart_count: int = 0
    used: int = 0


class Stop(NamedTuple):
    """End the workers of the epoch."""

    epoch: int
    cause: Cause
    grace_s: Seconds


class Stacks(NamedTuple):
    """Show where the workers of the epoch are."""

    epoch: int


class End(NamedTuple):
    """The launch is over for this launcher, which ends with the status."""

    status: Code
    cause: Cause | None = None
    restart_count: int = 0


TO_HUB = (Hello, Idle, Done, Failed, Silent, Stacked, Signalled, Beat)
TO_MEMBER = (Welcome, Waiting, Refused, Start, Begun, Stop, Stacks, End, Beat)
if TYPE_CHECKING:
    ToHub: TypeAlias = Hello | Idle | Done | Failed | Silent | Stacked | Signalled | Beat
    ToMember: TypeAlias = Welcome | Waiting | Refused | Start | Begun | Stop | Stacks | End | Beat
    Message: TypeAlias = ToHub | ToMember

KINDS: dict[str, Any] = {kind.__name__.lower(): kind for kind in (*TO_HUB, *TO_MEMBER)}


def to_json(message: Message) -> dict[str, Any]:
    """The message as an object for json.dumps."""
    fields = message._asdict()
    if cause := fields.get("cause"):
        fields["cause"] = cause._asdict()
    return {"is": type(message).__name__.lower(), **fields}


def from_json(read: object, expected: tuple[type, ...]) -> Any:
    """Build the message from an object. Raises Malformed, also for a kind that is not expected."""
    if not isinstance(read, dict):
        raise Malformed("no object")
    kind = KINDS.get(read["is"]) if isinstance(read.get("is"), str) else None
    if kind not in expected:
        raise Malformed("not a message of this direction")
    return _record(kind, read)


def _record(kind: Any, read: dict[str, Any]) -> Any:
    fields = {}
    for name, annotation in kind.__annotations__.items():
        if name in read:
            fields[name] = CHECKS[annotation](read[name])
        elif name not in kind._field_defaults:
            raise Malformed(f"{name} is missing")
    return kind(**fields)


def _within(least: int, most: int) -> Any:
    def check(read: Any) -> int:
        if type(read) is not int or not least <= read <= most:
            raise Malformed("a number that cannot be")
        return read

    return check


def _one_of(known: Any) -> Any:
    def check(read: Any) -> Any:
        if type(read) not in (bool, str) or read not in known:
            raise Malformed("not one of the values that are known")
        return read

    return check


def _seconds(read: Any) -> float:
    if type(read) not in (int, float) or not 0 <= read <= 1e12:  # false for nan as well
        raise Malformed("a time that cannot be")
    return float(read)


def _str(read: Any) -> str:
    if type(read) is not str or len(read) > MOST_CHARS:
        raise Malformed("not a text, or too long")
    return read


def _name(read: Any) -> str:
    """Check a name: it has printable characters only, so that execve(2) finds no NUL in it."""
    if type(read) is not str or len(read) > MOST_NAME or not read.isprintable():
        raise Malformed("not a name, or too long")
    return read


def _list(read: Any) -> list[Any]:
    if type(read) is not list or len(read) > MOST_ITEMS:
        raise Malformed("not a list, or too long")
    return read


def _rows(read: Any, *checks: Any) -> tuple[Any, ...]:
    """Read tuples, which json.dumps has written as lists; `checks` are for their parts."""
    rows = _list(read)
    if any(type(row) is not list or len(row) != len(checks) for row in rows):
        raise Malformed("not a list of rows")
    return tuple(
        tuple(check(part) for check, part in zip(checks, row, strict=True)) for row in rows
    )


def _parts(kind: Any, read: Any) -> tuple[Any, ...]:
    """Read the parts of a message, such as its Where records."""
    checks = (CHECKS[annotation] for annotation in kind.__annotations__.values())
    return tuple(kind(*row) for row in _rows(read, *checks))


def _cause(read: Any) -> Cause:
    if type(read) is not dict:
        raise Malformed("no cause")
    return _record(Cause, read)  # type: ignore[no-any-return]


_rank, _code = _within(-1, MOST_COUNT), _within(-64, 255)
CHECKS: dict[str, Any] = {  # by annotation
    "int": _within(-(2**53), 2**53),
    "Count": _within(0, MOST_COUNT),
    "Rank": _rank,
    "Port": _within(1, 65535),
    "Signal": _within(0, 64),
    "Code": _code,
    "Seconds": _seconds,
    "bool": _one_of((False, True)),
    "str": _str,
    "Name": _name,
    "Kind": _one_of(WORDS),
    "tuple[str, ...]": lambda read: tuple(map(_str, _list(read))),
    "tuple[Name, ...]": lambda read: tuple(map(_name, _list(read))),
    "tuple[tuple[Rank, Code], ...]": lambda read: _rows(read, _rank, _code),
    "tuple[tuple[Rank, Rank], ...]": lambda read: _rows(read, _rank, _rank),
    "tuple[Where, ...]": lambda read: _parts(Where, read),
    "tuple[Reached, ...]": lambda read: _parts(Reached, read),
    "tuple[tuple[str, str], ...]": lambda read: _rows(read, _str, _str),
    "Cause": _cause,
    "Cause | None": lambda read: None if read is None else _cause(read),
}
