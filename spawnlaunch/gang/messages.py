"""What launchers say to each other, and one table to write it as JSON and to read it again.

A record is written as an object of its fields, with its kind under "is". What is read is checked
against the annotations. Unknown fields are ignored, missing ones have their default: so a field can
be added without a new VERSION.
"""

from __future__ import annotations

from spawnlaunch.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

VERSION = 1

MOST_CHARS = 16384  # of any text in a message, such as a worker's last words
MOST_ITEMS = 65536  # of any list


class Malformed(ValueError):
    """What was read is no message."""


class Cause(NamedTuple):
    """Why an epoch ended: the first thing that went wrong, or that was asked for."""

    # "failure", "hang", "lost", "signal", "timeout", "join" (somebody came), or "absent"
    kind: str
    host: str = ""  # where
    rank: int = -1  # of a failure: the worker
    number: int = 0  # how that worker ended, as subprocess has it; or the signal
    words: str = ""  # the worker's last ones, or who is missing
    pid: int = 0
    oom: str = ""  # evidence that memory ran out
    lost: tuple[str, ...] = ()  # hosts that were lost meanwhile, which may be the true cause


# From a member to the hub


class Hello(NamedTuple):
    """A launcher is ready for workers: preloads are imported, old workers gone, a port is held."""

    version: int
    host: str
    who: str  # of this launcher alone, and of all its connections
    nproc: int
    boot: str = ""  # of the machine
    rank: int = -1  # node rank, where one was given
    port: int = 0  # free, and held for MASTER_PORT
    addr: str = ""  # of this node for others, where one was given
    epoch: int = 0  # the highest that it has seen
    nodes: int = 0  # how many nodes that had
    last: int = -1  # node rank in it
    total: int = 0  # starts of workers after the first
    used: int = 0  # of the restarts that are allowed
    told: tuple[tuple[str, str], ...] = ()  # what the user has told it that all should agree on
    place: int = 0  # for files: the first number of a run that is new here; 0: none are kept
    launch: str = ""  # of which it has been a part
    leaving: int = 0  # the signal that told it to end, before it had a hub


class Idle(NamedTuple):
    """No worker of the epoch runs any more on this node, which is ready for others."""

    epoch: int
    port: int = 0
    outcomes: tuple[tuple[int, int], ...] = ()  # rank and code of each worker


class Done(NamedTuple):
    """All workers of this node have ended with 0."""

    epoch: int


class Failed(NamedTuple):
    """A worker has failed."""

    epoch: int
    rank: int
    code: int  # as subprocess has it: -n is death by signal n
    pid: int = 0
    age_s: float = 0.0  # how long ago, half a round trip included
    words: str = ""
    oom: str = ""


class Silent(NamedTuple):
    """No worker of this node has said anything for --hang-timeout."""

    epoch: int


class Talking(NamedTuple):
    """A worker of this node has said something again."""

    epoch: int


class Stacked(NamedTuple):
    """The stacks of this node's workers have been shown."""

    epoch: int


class Signalled(NamedTuple):
    """This launcher was told to end."""

    number: int
    again: bool = False  # a second time: at once


class Beat(NamedTuple):
    """Says that the other end is alive; the hub answers with the same number."""

    number: int = 0


# From the hub to a member


class Welcome(NamedTuple):
    """The hello was accepted. From here on the hub's settings count for this launcher."""

    absent: tuple[str, ...] = ()  # who is still waited for
    returns: bool = False  # whether to look for a hub that was lost
    beat_s: float = 5.0
    dead_s: float = 60.0
    join_s: float = 600.0
    grace_s: float = 30.0
    failure_grace_s: float = 10.0
    differs: tuple[str, ...] = ()  # what this launcher was told differently, in words


class Waiting(NamedTuple):
    """Some launchers are missing. The hub says so every few seconds."""

    absent: tuple[str, ...]


class Refused(NamedTuple):
    """This launcher cannot be part of the gang."""

    why: str


class Start(NamedTuple):
    """Start the workers of an epoch."""

    epoch: int
    node_rank: int
    nnodes: int
    first_rank: int
    world_size: int
    master_addr: str
    master_port: int
    total: int = 0  # TORCHELASTIC_RESTART_COUNT
    used: int = 0
    place: int = 0  # for files, the same on all nodes and in all epochs
    launch: str = ""  # a name that no other launch has


class Begun(NamedTuple):
    """An epoch has begun without this node, which waits as a spare."""

    epoch: int
    nodes: int
    total: int = 0
    used: int = 0


class Stop(NamedTuple):
    """End the workers of the epoch."""

    epoch: int
    cause: Cause
    grace_s: float


class Stacks(NamedTuple):
    """Show where the workers of the epoch are."""

    epoch: int


class End(NamedTuple):
    """The launch is over for this launcher, which ends with the status."""

    status: int
    cause: Cause | None = None
    total: int = 0


TO_HUB = (Hello, Idle, Done, Failed, Silent, Talking, Stacked, Signalled, Beat)
TO_MEMBER = (Welcome, Waiting, Refused, Start, Begun, Stop, Stacks, End, Beat)
if TYPE_CHECKING:
    ToHub: TypeAlias = Hello | Idle | Done | Failed | Silent | Talking | Stacked | Signalled | Beat
    ToMember: TypeAlias = Welcome | Waiting | Refused | Start | Begun | Stop | Stacks | End | Beat
    Message: TypeAlias = ToHub | ToMember

KINDS: dict[str, Any] = {kind.__name__.lower(): kind for kind in (*TO_HUB, *TO_MEMBER)}


def to_json(message: Message) -> dict[str, Any]:
    """The message as an object for json.dumps."""
    fields = {name: _plain(value) for name, value in message._asdict().items()}
    return {"is": type(message).__name__.lower(), **fields}


def _plain(value: object) -> object:
    return value._asdict() if isinstance(value, Cause) else value


def from_json(read: object, expected: tuple[type, ...]) -> Any:
    """The message that an object stands for. Raises Malformed; so does one that is not expected."""
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


def _int(read: Any) -> int:
    if type(read) is not int or not -(2**53) < read < 2**53:
        raise Malformed("not a number")
    return read


def _float(read: Any) -> float:
    if type(read) not in (int, float) or not -1e12 < read < 1e12:  # nan is not, either
        raise Malformed("not a number")
    return float(read)


def _bool(read: Any) -> bool:
    if type(read) is not bool:
        raise Malformed("neither true nor false")
    return read


def _str(read: Any) -> str:
    if type(read) is not str or len(read) > MOST_CHARS:
        raise Malformed("not a text, or too long")
    return read


def _list(read: Any) -> list[Any]:
    if type(read) is not list or len(read) > MOST_ITEMS:
        raise Malformed("not a list, or too long")
    return read


def _pairs(read: Any) -> list[Any]:
    if any(type(item) is not list or len(item) != 2 for item in _list(read)):
        raise Malformed("not a list of pairs")
    return _list(read)


def _cause(read: Any) -> Cause:
    if type(read) is not dict:
        raise Malformed("no cause")
    return _record(Cause, read)  # type: ignore[no-any-return]


CHECKS: dict[str, Any] = {  # by annotation
    "int": _int,
    "float": _float,
    "bool": _bool,
    "str": _str,
    "tuple[str, ...]": lambda read: tuple(map(_str, _list(read))),
    "tuple[tuple[int, int], ...]": lambda read: tuple((_int(a), _int(b)) for a, b in _pairs(read)),
    "tuple[tuple[str, str], ...]": lambda read: tuple((_str(a), _str(b)) for a, b in _pairs(read)),
    "Cause": _cause,
    "Cause | None": lambda read: None if read is None else _cause(read),
}
