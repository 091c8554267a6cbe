"""The hub's records: what it knows, what happens to it, and what it wants done."""

from __future__ import annotations

from spawnlaunch.gang.settings import Settings
from spawnlaunch.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from spawnlaunch.gang.messages import Cause, Hello, ToHub, ToMember
    from spawnlaunch.gang.roster import Node
    from spawnlaunch.gang.verdict import Failure

JOINING, RUNNING, STOPPING, ENDED = "joining", "running", "stopping", "ended"


class Came(NamedTuple):
    """Somebody has said hello, on a new connection, from this address."""

    conn: int
    hello: Hello
    addr: str
    local: bool = False


class Heard(NamedTuple):
    """A member has said something."""

    conn: int
    message: ToHub


class Gone(NamedTuple):
    """A connection has ended. Certain: the other end closed it, so that nothing runs there."""

    conn: int
    certain: bool


class Tick(NamedTuple):
    """It is as late as `due` said."""


class Say(NamedTuple):
    """Send a message."""

    conn: int
    message: ToMember


class Close(NamedTuple):
    """End a connection, once what was said on it is sent."""

    conn: int


class Note(NamedTuple):
    """Tell the user, on the hub's node. The kind is a word that `words` knows."""

    kind: str
    about: tuple[str, ...] = ()


Event: TypeAlias = "Came | Heard | Gone | Tick"
Action: TypeAlias = "Say | Close | Note"


class Fence(NamedTuple):
    """A launcher that was lost, whose workers may run until then."""

    who: str
    host: str
    boot: str
    until: float


class Hub(NamedTuple):
    """The gang, as far as decisions go. Times are seconds of the hub's own clock."""

    settings: Settings
    phase: str = JOINING
    nodes: dict[int, Node] = {}  # noqa: RUF012 - never changed, always replaced
    arrivals: int = 0
    epoch: int = 0  # the last that began here
    floor: int = 0  # the highest that anybody has seen
    size: int = 0  # how many nodes the last epoch had
    total: int = 0
    used: int = 0
    since: float = 0.0  # when the phase began
    called: float | None = None  # since when enough are there
    told: float = 0.0  # when the missing were named last
    fences: tuple[Fence, ...] = ()
    began: float | None = None  # the first epoch
    cause: Cause | None = None  # of the epoch that ends
    failure: Failure | None = None  # the first, as far as is known
    lost: tuple[str, ...] = ()  # hosts, since the epoch began
    place: tuple[int, str] | None = None  # for files; and the launch
    outcomes: tuple[tuple[int, int], ...] = ()
    asked: float | None = None  # since when stacks are being shown
    healthy_s: float = 0.0  # how long the epoch's workers have run
    status: int = 0
    late: int = 0  # launchers that are on their way, and shall hear how it ended
    until: float = 0.0  # how long they are waited for
    clock: float | None = None  # the time of the last step
    slept: float = 0.0  # by which the hub's clock is behind
