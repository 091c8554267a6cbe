"""The two messages of launchers, and how they are written as JSON and read.

A record is written as a list of its fields. The reader checks each field against its annotation,
as a launcher of the same run may be broken, or without a token be anybody's.
"""

from __future__ import annotations

from functools import partial

from spawnlaunch.base.records import NamedTuple
from spawnlaunch.outcome.failures import WORDS, Cause

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from spawnlaunch.outcome.failures import Code, Count, Name, Rank, Seconds

VERSION = 4

MOST_CHARS = 16384  # of any text in a message, such as a worker's last words
MOST_ITEMS = 65536  # of any list
MOST_NAME = 255  # characters of a host's name (hostname(7)), or of a launch's
MOST_COUNT = 10**9  # of anything that a launch counts: restarts, epochs, ranks

# States of a node's workers. READY: none run, and it is ready for others; FINISHED: all have ended
# with 0; UNABLE: none can be started, as the Report's cause says.
READY, RUNNING, STOPPING, FINISHED, UNABLE = "ready", "running", "stopping", "finished", "unable"
# Actions of a node. END: exit, and end the workers before that.
WAIT, RUN, STOP, END = "wait", "run", "stop", "end"

# Names of numbers and texts by meaning, as those in failures: CHECKS has the bounds of each.
Port = int
Signal = int  # 0: none
State = str
Action = str


class Malformed(ValueError):
    """The text or object that was read is no message."""


class Failed(NamedTuple):
    """A worker's failure."""

    cause: Cause
    age_s: Seconds  # since then, half a round trip included
    early_s: Seconds  # it may have been so much earlier


class Where(NamedTuple):
    """The place of some ranks: the words after the name of one rank, and after several names."""

    one: str
    several: str
    ranks: tuple[tuple[Rank, Rank], ...]  # the first and the last of each range


class Reached(NamedTuple):
    """The last collective of a process group that ranks have entered."""

    group: str
    number: Count  # in its group, from 1; 0: none
    name: str
    what: str  # type and shape of its tensors, where all ranks must have the same
    place: str  # the user's line at which these ranks are
    age_s: Seconds  # since the first of these ranks entered it
    ranks: tuple[tuple[Rank, Rank], ...]
    is_over: bool  # it has completed for these ranks, which wait for no other in it
    is_backward: bool  # these ranks are within a backward pass


class Report(NamedTuple):
    """What a launcher is, completely."""

    host: Name
    who: Name  # of this launcher alone, the same on all its connections
    nproc: Count
    rank: Rank = -1  # node rank, where the user or the manager gave one
    port: Port = 1  # free, and held for MASTER_PORT
    addr: Name = ""  # this node's address for others, where the user gave one
    role: str = "default"
    flags: str = ""  # those that should be equal on all nodes, with their values
    is_restarted: bool = False  # a manager starts it again if it fails, as Kubernetes does
    epoch: Count = 0  # the last one that it has heard of
    state: State = READY
    leaving: Signal = 0  # the signal to end that it got
    is_hurried: bool = False  # it got a second one: no grace
    cause: Cause | None = None  # of UNABLE
    failures: tuple[Failed, ...] = ()  # those of the epoch that may be the first
    ends: tuple[tuple[Rank, Code], ...] = ()  # of the epoch's workers
    is_silent: bool = False  # no worker has written anything for --hang-timeout
    stacks: Count = 0  # the last request for stacks that is answered: the next fields
    where: tuple[Where, ...] = ()
    reached: tuple[Reached, ...] = ()


class Order(NamedTuple):
    """What a node is to do, completely."""

    action: Action
    epoch: Count = 0
    node_rank: Rank = -1
    nnodes: Count = 0
    first_rank: Rank = 0
    world_size: Count = 0
    role_rank: Rank = 0  # of the first worker, among those of its role
    role_size: Count = 0
    master_addr: Name = ""
    master_port: Port = 1
    restart: Count = 0  # TORCHELASTIC_RESTART_COUNT
    launch: Name = ""  # a name that no other launch has
    stacks: Count = 0  # number of the last request for stacks
    grace_s: Seconds = 0.0  # of the workers: at a STOP, or where the hub is lost
    cause: Cause | None = None
    status: Code = 0
    note: str = ""  # for the user


def read_record(kind: Callable[..., Any], read: object) -> Any:
    """Build a record from what JSON gives for it. Raises Malformed."""
    checks = _CHECKS_OF[kind]
    if type(read) is not list or len(read) != len(checks):
        raise Malformed("not a list, or not all of a message")
    return kind(*(check(value) for check, value in zip(checks, read, strict=True)))


def _number(least: int, most: int, read: Any) -> int:
    if type(read) is not int or not least <= read <= most:
        raise Malformed("a number that cannot be")
    return read


def _seconds(read: Any) -> float:
    if type(read) not in (int, float) or not 0 <= read <= 1e12:  # false for nan as well
        raise Malformed("a time that cannot be")
    return float(read)


def _bool(read: Any) -> bool:
    if type(read) is not bool:
        raise Malformed("neither true nor false")
    return read


def _text(most: int, is_printable: bool, read: Any) -> str:
    """Check a text; execve(2) must find no NUL in one that is printable."""
    if type(read) is not str or len(read) > most or (is_printable and not read.isprintable()):
        raise Malformed("not a text, or too long")
    return read


def _word(known: Any, read: Any) -> str:
    if type(read) is not str or read not in known:
        raise Malformed("a word that nobody knows")
    return read


def _list(check: Callable[[Any], Any], read: Any) -> tuple[Any, ...]:
    if type(read) is not list or len(read) > MOST_ITEMS:
        raise Malformed("not a list, or too long")
    return tuple(map(check, read))


def _pair(first: Callable[[Any], Any], second: Callable[[Any], Any], read: Any) -> tuple[Any, Any]:
    if type(read) is not list or len(read) != 2:
        raise Malformed("not a pair")
    return first(read[0]), second(read[1])


def _optional(check: Callable[[Any], Any], read: Any) -> Any:
    return None if read is None else check(read)


_RANK, _CODE = partial(_number, -1, MOST_COUNT), partial(_number, -64, 255)
_CAUSE = partial(read_record, Cause)
CHECKS: dict[str, Callable[[Any], Any]] = {  # by annotation
    "Count": partial(_number, 0, MOST_COUNT),
    "Rank": _RANK,
    "Port": partial(_number, 1, 65535),
    "Signal": partial(_number, 0, 64),
    "Code": _CODE,
    "Seconds": _seconds,
    "bool": _bool,
    "str": partial(_text, MOST_CHARS, False),
    "Name": partial(_text, MOST_NAME, True),
    "Kind": partial(_word, WORDS),
    "State": partial(_word, (READY, RUNNING, STOPPING, FINISHED, UNABLE)),
    "Action": partial(_word, (WAIT, RUN, STOP, END)),
    "Cause": _CAUSE,
    "Cause | None": partial(_optional, _CAUSE),
    "tuple[Name, ...]": partial(_list, partial(_text, MOST_NAME, True)),
    "tuple[tuple[Rank, Rank], ...]": partial(_list, partial(_pair, _RANK, _RANK)),
    "tuple[tuple[Rank, Code], ...]": partial(_list, partial(_pair, _RANK, _CODE)),
    "tuple[Failed, ...]": partial(_list, partial(read_record, Failed)),
    "tuple[Where, ...]": partial(_list, partial(read_record, Where)),
    "tuple[Reached, ...]": partial(_list, partial(read_record, Reached)),
}
_CHECKS_OF: dict[Any, tuple[Callable[[Any], Any], ...]] = {
    kind: tuple(CHECKS[annotation] for annotation in kind.__annotations__.values())
    for kind in (Cause, Failed, Where, Reached, Report, Order)
}
