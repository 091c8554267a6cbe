"""A member's records: what it knows, what happens to it, and what it wants done."""

from __future__ import annotations

from spawnlaunch.gang.messages import Cause, End, Hello, Start, Welcome
from spawnlaunch.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from spawnlaunch.gang.messages import ToHub, ToMember

SEEKING, GREETING, JOINED, RUNNING = "seeking", "greeting", "joined", "running"
DONE, STOPPING, FENCED, ENDED = "done", "stopping", "fenced", "ended"


SOON_S, RARELY_S = 0.05, 1.0  # until the next attempt to connect: first, at most


class Linked(NamedTuple):
    """The connection to the hub is there, and both ends have proved what they are."""


class Unlinked(NamedTuple):
    """There is none, or it has ended."""

    why: str = ""
    is_final: bool = False  # another token or version: to try again is no use


class Heard(NamedTuple):
    """The hub has said something."""

    message: ToMember


class WorkerFailed(NamedTuple):
    """A worker has failed, the first on this node; the others are being ended."""

    rank: int
    code: int
    pid: int = 0
    age_s: float = 0.0
    words: str = ""
    oom: str = ""


class WorkersEnded(NamedTuple):
    """No worker runs any more, and the launcher is ready for others."""

    well: bool  # all with 0, and nobody had told them to end
    port: int = 0  # free, and held
    outcomes: tuple[tuple[int, int], ...] = ()


class Told(NamedTuple):
    """This launcher has got a signal that means to end the job."""

    number: int


class Quiet(NamedTuple):
    """No worker has said anything for long; or one has again."""

    is_so: bool


class StacksShown(NamedTuple):
    """The stacks of all workers were shown."""


class Tick(NamedTuple):
    """It is as late as `due` said."""


class Connect(NamedTuple):
    """Look the endpoint up, and connect to it."""


class Disconnect(NamedTuple):
    """End the connection, once what was said is sent."""


class Say(NamedTuple):
    """Send a message to the hub."""

    message: ToHub


class Launch(NamedTuple):
    """Start the workers."""

    start: Start


class Halt(NamedTuple):
    """End the workers: SIGTERM, and SIGKILL after the grace. It ends with WorkersEnded."""

    cause: Cause
    grace_s: float


class ShowStacks(NamedTuple):
    """Show the workers' stacks. It ends with StacksShown."""


class Note(NamedTuple):
    """Tell the user. The kind is a word that `words` knows."""

    kind: str
    about: tuple[str, ...] = ()


class Exit(NamedTuple):
    """End the launcher with the status."""

    status: int
    cause: Cause | None


if TYPE_CHECKING:
    Event: TypeAlias = (
        Linked | Unlinked | Heard | WorkerFailed | WorkersEnded | Told | Quiet | StacksShown | Tick
    )
    Action: TypeAlias = Connect | Disconnect | Say | Launch | Halt | ShowStacks | Note | Exit


class Member(NamedTuple):
    """A launcher, as far as decisions go. Times are seconds of its own clock."""

    hello: Hello  # as it would be said now
    join_s: float = 600.0
    state: str = SEEKING
    rules: Welcome = Welcome()
    since: float | None = None  # when it began to seek
    retry: float | None = None  # when to connect next; None: it is connecting
    wait_s: float = SOON_S
    is_linked: bool = False
    heard: float = 0.0
    beat: float = 0.0  # when the last one was sent
    number: int = 0
    trip_s: float = 0.0  # the least round trip
    leaving: int = 0  # the signal that it got
    left: float = 0.0  # when, or when it had a hub to tell
    cause: Cause | None = None
    end: End | None = None  # told while workers ran
    silent: bool = False
    clock: float | None = None
    slept: float = 0.0
    outcomes: tuple[tuple[int, int], ...] = ()  # of workers that have ended with 0
