"""The hub: decides for the launchers of all nodes. A pure function of state, event and time.

    step(hub, event, now) -> (hub, actions)

No socket, clock or process is looked at here. The gang is in one of four phases:

    JOINING   nobody works; launchers come, and the next epoch begins when enough are ready
    RUNNING   an epoch's workers run
    STOPPING  they were told to end; once all have, the hub decides whether there is another epoch
    ENDED     everybody was told the status

An event changes what the hub knows of its members; `phases.settled` draws the conclusions.
"""

from __future__ import annotations

from spawnlaunch.gang import phases, roster, verdict
from spawnlaunch.gang.hub_records import (
    ENDED,
    RUNNING,
    STOPPING,
    Action,
    Came,
    Close,
    Event,
    Fence,
    Gone,
    Heard,
    Hub,
    Note,
    Say,
    Tick,
)  # fmt: skip
from spawnlaunch.gang.messages import (
    Beat,
    Begun,
    Cause,
    Done,
    End,
    Failed,
    Hello,
    Idle,
    Refused,
    Signalled,
    Silent,
    Stacked,
    Stop,
    Talking,
    Welcome,
)  # fmt: skip
from spawnlaunch.gang.roster import BUSY, DONE, IDLE, Node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from spawnlaunch.gang.messages import ToHub

STRIDE_S = 10.0  # the longest time that passes between two steps; what is more, the hub slept
TURN_S = 5.0  # so often it is asked at least
CERTAIN_S = 0.5  # the kernel closes a guard's connection before it kills its workers


def step(hub: Hub, event: Event, now: float) -> tuple[Hub, list[Action]]:
    """The hub after an event, and what to do, in this order."""
    slept = _slept(hub.clock, hub.slept, now)
    hub, at = hub._replace(clock=now, slept=slept), now - slept
    actions: list[Action] = []
    match event:
        case Came():
            hub = _came(hub, event, at, actions)
        case Heard(conn=conn, message=message):
            if conn in hub.nodes:
                hub = _heard(_changed(hub, conn, heard=at), conn, message, at, actions)
        case Gone(conn=conn, certain=certain):
            hub = _gone(hub, conn, certain, at, actions)
        case Tick():
            pass
    hub = _without_dead(hub, at, actions)
    return phases.settled(hub, at, actions), actions


def due(hub: Hub, now: float) -> float:
    """How many seconds from now the next Tick is wanted, if nothing else happens."""
    at = now - _slept(hub.clock, hub.slept, now)
    later = [time for time in phases.times(hub) if time > at]
    return max(0.01, min([TURN_S, *(time - at for time in later)]))


def is_over(hub: Hub, now: float) -> bool:
    """Whether it has ended, and nobody is on the way who has not heard it."""
    at = now - _slept(hub.clock, hub.slept, now)
    return hub.phase == ENDED and (hub.late <= 0 or at >= hub.until)


def _slept(clock: float | None, slept: float, now: float) -> float:
    """By how many seconds the hub's own clock is behind: it stands while the machine sleeps.

    So nobody is declared dead because the hub itself was frozen. A clock that goes back does no
    harm either.
    """
    passed = 0.0 if clock is None else now - clock
    return slept + max(0.0, passed - STRIDE_S) + min(0.0, passed)


def _changed(hub: Hub, conn: int, **changes: Any) -> Hub:
    return hub._replace(nodes={**hub.nodes, conn: hub.nodes[conn]._replace(**changes)})


def _came(hub: Hub, event: Came, at: float, actions: list[Action]) -> Hub:
    """Welcome a launcher, or say why it cannot be one of these."""
    hello, settings = event.hello, hub.settings
    for conn, node in hub.nodes.items():
        if _is_later_self(hello, event.addr, node):  # the end of its connection is still to come
            actions.append(Close(conn))
            hub = _gone(hub, conn, True, at, actions)
    why = roster.refusal(hello, hub.nodes, settings.total, dict(settings.told))
    if why:
        actions += [Say(event.conn, Refused(why)), Close(event.conn), Note("refused", (why,))]
        return hub
    node = Node(hello, hello.addr or event.addr, event.local, heard=at, came=hub.arrivals)
    fences = tuple(fence for fence in hub.fences if not _ends(hello, fence))
    hub = hub._replace(arrivals=hub.arrivals + 1, fences=fences)
    hub = _of_another_hub(hub, event.conn, node)
    absent = roster.absent(hub.nodes, settings.expected, settings.total)
    differs = roster.differences(hello, dict(settings.told))
    if differs:
        actions.append(Note("differs", (hello.host, *differs)))
    actions.append(Say(event.conn, Welcome(absent, differs=differs, **settings.for_members())))
    if hub.phase in (RUNNING, STOPPING):
        actions.append(Say(event.conn, Begun(hub.epoch, hub.size, hub.total, hub.used)))
    if hub.phase == ENDED:
        actions.append(Say(event.conn, End(hub.status, hub.cause, hub.total)))
        hub = hub._replace(late=hub.late - 1)
    if hello.leaving:
        hub = _signalled(hub, event.conn, hello.leaving, False, at, actions)
    return hub


def _is_later_self(hello: Hello, addr: str, node: Node) -> bool:
    """Whether this is a launcher that we know, or one of the same machine, started again."""
    old = node.hello
    if old.who == hello.who:
        return True
    return old.boot != hello.boot and (old.host, old.rank, node.addr) == (
        hello.host, hello.rank, hello.addr or addr
    )  # fmt: skip


def _ends(hello: Hello, fence: Fence) -> bool:
    """A hello says that nothing of before runs: of this launcher, or on this machine."""
    return hello.who == fence.who or (hello.host == fence.host and hello.boot != fence.boot)


def _of_another_hub(hub: Hub, conn: int, node: Node) -> Hub:
    """Take in a newcomer, and what it knows of epochs that a hub before this one has begun.

    One that has lost another hub may not know all that this has begun.
    """
    hello, nodes = node.hello, hub.nodes
    if hub.epoch == 0 and hello.epoch > hub.floor:
        nodes = {c: other._replace(rank=-1) for c, other in nodes.items()}
        hub = hub._replace(size=hello.nodes)
    if hub.epoch == 0 and hello.epoch and hello.epoch >= hub.floor:
        node = node._replace(rank=hello.last)
    return hub._replace(
        nodes={**nodes, conn: node},
        floor=max(hub.floor, hello.epoch),
        total=max(hub.total, hello.total),
        used=max(hub.used, hello.used),
    )


def _gone(hub: Hub, conn: int, certain: bool, at: float, actions: list[Action]) -> Hub:
    """A member is lost, and with it its workers; but not those that had ended well."""
    node = hub.nodes.get(conn)
    if node is None:
        return hub
    hub = hub._replace(nodes={c: other for c, other in hub.nodes.items() if c != conn})
    if node.state != BUSY or hub.phase == ENDED:
        return hub
    wait_s = CERTAIN_S if certain else phases.NOTICE_S + hub.settings.longest_grace_s
    host = node.hello.host
    fence = Fence(node.hello.who, host, node.hello.boot, at + wait_s)
    hub = hub._replace(fences=(*hub.fences, fence), lost=(*hub.lost, host))
    if hub.phase == RUNNING:
        return phases.stopped(hub, Cause("lost", host), at, actions)
    return hub


def _without_dead(hub: Hub, at: float, actions: list[Action]) -> Hub:
    """Give up those that have said nothing for long, though the kernel there still answers."""
    for conn, node in hub.nodes.items():
        if at - node.heard >= hub.settings.dead_s:
            actions += [Note("frozen", (node.hello.host,)), Close(conn)]
            hub = _gone(hub, conn, False, at, actions)
    return hub


def _heard(hub: Hub, conn: int, message: ToHub, at: float, actions: list[Action]) -> Hub:
    """What a member says of its workers counts for the present epoch only, if it is in that."""
    match message:
        case Beat():
            actions.append(Say(conn, message))
            return hub
        case Signalled(number=number, again=again):
            return _signalled(hub, conn, number, again, at, actions)
        case Hello():
            return hub
    if message.epoch != hub.epoch or hub.nodes[conn].state == IDLE:
        return hub
    return _of_epoch(hub, conn, message, at, actions)


def _of_epoch(
    hub: Hub,
    conn: int,
    message: Idle | Done | Failed | Silent | Talking | Stacked,
    at: float,
    actions: list[Action],
) -> Hub:
    match message:
        case Idle(port=port, outcomes=outcomes):
            hello = hub.nodes[conn].hello._replace(port=port)
            hub = hub._replace(outcomes=(*hub.outcomes, *outcomes))
            hub = _changed(hub, conn, state=IDLE, hello=hello)
            if hub.phase == RUNNING:  # nobody has told it to
                return phases.stopped(hub, Cause("lost", hello.host), at, actions)
        case Done():
            return _changed(hub, conn, state=DONE)
        case Failed():
            return _failed(hub, conn, message, at, actions)
        case Silent():
            return _changed(hub, conn, silent=True)
        case Talking():
            nodes = {c: node._replace(stacked=False) for c, node in hub.nodes.items()}
            return _changed(hub._replace(nodes=nodes, asked=None), conn, silent=False)
        case Stacked():
            return _changed(hub, conn, stacked=True)
    return hub


def _failed(hub: Hub, conn: int, message: Failed, at: float, actions: list[Action]) -> Hub:
    failure = verdict.failure(message, hub.nodes[conn].hello.host, at)
    hub = hub._replace(failure=verdict.first(hub.failure, failure))
    return phases.stopped(hub, failure.cause, at, actions) if hub.phase == RUNNING else hub


def _signalled(
    hub: Hub, conn: int, number: int, again: bool, at: float, actions: list[Action]
) -> Hub:
    """A launcher was told to end; a second time it does not want to wait, nor do the others."""
    node = hub.nodes[conn]
    hub = _changed(hub, conn, leaving=node.leaving or number)
    cause = Cause("signal", node.hello.host, number=number)
    if hub.phase == RUNNING and (node.state != IDLE or node.local):  # else a spare leaves
        hub = phases.stopped(hub, cause, at, actions)
    if again and hub.phase == STOPPING:
        busy = [c for c, other in hub.nodes.items() if other.state != IDLE]
        actions += [Say(c, Stop(hub.epoch, hub.cause or cause, 0.0)) for c in busy]
    return hub
