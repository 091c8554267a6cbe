"""A member: one node's launcher, as far as the gang goes. A pure function of state, event, time.

    step(member, event, now) -> (member, actions)

    SEEKING   it has no hub: connects to the endpoint, again and again
    GREETING  it has said hello
    JOINED    it is ready for workers
    RUNNING   its workers run
    DONE      its workers have all ended with 0; others' may run
    STOPPING  its workers were told to end
    FENCED    the hub is lost: its workers were told to end, lest the hub begin without it
    ENDED     it has its exit status

A connection is closed only when no workers run: so its end is a certain sign of that for the hub.
"""

from __future__ import annotations

from spawnlaunch.gang.member_records import (
    DONE,
    ENDED,
    FENCED,
    GREETING,
    JOINED,
    RARELY_S,
    RUNNING,
    SEEKING,
    SOON_S,
    STOPPING,
    Connect,
    Disconnect,
    Exit,
    Halt,
    Heard,
    Launch,
    Linked,
    Member,
    Note,
    Quiet,
    Say,
    ShowStacks,
    StacksShown,
    Tick,
    Told,
    Unlinked,
    WorkerFailed,
    WorkersEnded,
)  # fmt: skip
from spawnlaunch.gang.messages import (
    Beat,
    Begun,
    Cause,
    Done,
    End,
    Failed,
    Idle,
    Refused,
    Signalled,
    Silent,
    Stacked,
    Stacks,
    Start,
    Stop,
    Talking,
    Waiting,
    Welcome,
)  # fmt: skip

TYPE_CHECKING = False
if TYPE_CHECKING:
    from spawnlaunch.gang.member_records import Action, Event
    from spawnlaunch.gang.messages import ToMember

LOST = 69  # EX_UNAVAILABLE of sysexits.h
USAGE = 2
STRIDE_S = 10.0  # the longest time that passes between two steps; what is more, it slept
TURN_S = 5.0
WORD_S = 5.0  # for a hub to hear from a launcher that it was told to end


def step(member: Member, event: Event, now: float) -> tuple[Member, list[Action]]:
    """The member after an event, and what to do, in this order."""
    slept = _slept(member.clock, member.slept, now)
    member, at = member._replace(clock=now, slept=slept), now - slept
    actions: list[Action] = []
    if member.since is None:  # the first step
        member = _seeking(member, at, actions)
    if member.state == ENDED:
        return member, actions
    match event:
        case Linked():
            actions.append(Say(member.hello))
            member = member._replace(state=GREETING, is_linked=True, heard=at, beat=at, left=at)
        case Unlinked():
            member = _unlinked(member, event, at, actions)
        case Heard(message=message):
            member = _heard(member._replace(heard=at), message, at, actions)
        case Told(number=number):
            member = _told(member, number, at, actions)
        case Tick():
            pass
        case _:
            member = _of_workers(member, event, at, actions)
    return _on_time(member, at, actions), actions


def due(member: Member, now: float) -> float:
    """How many seconds from now the next Tick is wanted, if nothing else happens."""
    at = now - _slept(member.clock, member.slept, now)
    later = [TURN_S]
    if member.retry is not None:
        later.append(member.retry - at)
    if member.leaving and member.state == GREETING:
        later.append(member.left + WORD_S - at)
    if member.is_linked and member.state not in (GREETING, FENCED):
        later += [member.beat + member.rules.beat_s - at, member.heard + member.rules.dead_s - at]
    return max(0.01, min(later))


def _slept(clock: float | None, slept: float, now: float) -> float:
    """By how many seconds the member's own clock is behind: it stands while the machine sleeps.

    So a member that was frozen is not late. A clock that goes back does no harm either.
    """
    passed = 0.0 if clock is None else now - clock
    return slept + max(0.0, passed - STRIDE_S) + min(0.0, passed)


def _on_time(member: Member, at: float, actions: list[Action]) -> Member:
    """Do what is due: connect, give up, or send a Beat."""
    if member.state in (SEEKING, GREETING) and member.since is not None:
        if at >= member.since + member.join_s:  # a hub that is frozen takes connections as well
            return _exit(member, LOST, Cause("absent", words="the hub"), actions)
        if member.leaving and member.state == GREETING and at >= member.left + WORD_S:
            return _left(member, actions)
        if member.retry is not None and at >= member.retry:
            actions.append(Connect())
            return member._replace(retry=None)
    elif member.is_linked and member.state != FENCED:
        if at >= member.heard + member.rules.dead_s:
            return _fenced(member, at, actions)
        if at >= member.beat + member.rules.beat_s:
            actions.append(Say(Beat(member.number + 1)))
            return member._replace(beat=at, number=member.number + 1)
    return member


def _exit(member: Member, status: int, cause: Cause | None, actions: list[Action]) -> Member:
    if member.is_linked:
        actions.append(Disconnect())
    actions.append(Exit(status, cause))
    return member._replace(state=ENDED, cause=cause, is_linked=False)


def _left(member: Member, actions: list[Action]) -> Member:
    """End by the signal that this launcher got."""
    cause = Cause("signal", member.hello.host, number=member.leaving)
    return _exit(member, 128 + member.leaving, cause, actions)


# The connection


def _seeking(member: Member, at: float, actions: list[Action]) -> Member:
    actions.append(Connect())
    return member._replace(state=SEEKING, since=at, retry=None, wait_s=SOON_S)


def _unlinked(member: Member, event: Unlinked, at: float, actions: list[Action]) -> Member:
    member = member._replace(is_linked=False)
    if event.is_final:
        return _exit(member, USAGE, Cause("refused", words=event.why), actions)
    if member.state == SEEKING:
        if member.leaving:  # there is nobody to tell
            return _left(member, actions)
        wait_s = min(2 * member.wait_s, RARELY_S)
        return member._replace(retry=at + member.wait_s, wait_s=wait_s)
    if member.state == GREETING:  # a hub that goes as it is reached, or that has refused us
        return member._replace(state=SEEKING, retry=at + RARELY_S)
    return member if member.state == FENCED else _fenced(member, at, actions)


def _fenced(member: Member, at: float, actions: list[Action]) -> Member:
    """The hub is lost: end the workers, for it may begin an epoch without this node."""
    cause = Cause("lost", words="the hub")
    is_busy = member.state in (RUNNING, STOPPING)
    if member.state == RUNNING:
        actions.append(Halt(cause, member.rules.failure_grace_s))
    actions.append(Note("hub lost"))
    member = member._replace(state=FENCED, cause=cause)
    return member if is_busy else _alone(member, at, actions)


def _alone(member: Member, at: float, actions: list[Action]) -> Member:
    """There are neither a hub nor workers: end, or seek the hub again."""
    if not member.rules.returns:
        return _exit(member, LOST, member.cause, actions)
    if member.leaving:
        return _left(member, actions)
    if member.is_linked:
        actions.append(Disconnect())
    return _seeking(member._replace(is_linked=False), at, actions)


# What the hub says


def _heard(member: Member, message: ToMember, at: float, actions: list[Action]) -> Member:
    if member.state in (SEEKING, FENCED):  # what it says now is of a world that is over here
        return member
    match message:
        case Beat(number=number):
            if number != member.number:
                return member
            trip_s = at - member.beat
            return member._replace(trip_s=min(trip_s, member.trip_s or trip_s))
        case Welcome():
            return _welcomed(member, message, actions)
        case Waiting(absent=absent):
            actions.append(Note("waiting", absent))
        case Refused(why=why):
            if member.state == GREETING:
                return _exit(member, USAGE, Cause("refused", words=why), actions)
        case _:
            return _ordered(member, message, actions)
    return member


def _ordered(member: Member, message: ToMember, actions: list[Action]) -> Member:
    match message:
        case Start():
            return _started(member, message, actions)
        case Begun(epoch, nodes, total, used):
            if member.state == JOINED and epoch > member.hello.epoch:
                hello = member.hello._replace(
                    epoch=epoch, nodes=nodes, last=-1, total=total, used=used
                )
                return member._replace(hello=hello)
        case Stop():
            return _stopped(member, message, actions)
        case Stacks(epoch=epoch):
            if member.state == RUNNING and epoch == member.hello.epoch:
                actions.append(ShowStacks())
        case End():
            return _over(member, message, actions)
    return member


def _welcomed(member: Member, welcome: Welcome, actions: list[Action]) -> Member:
    if member.state != GREETING:
        return member
    if welcome.absent:
        actions.append(Note("awaited", welcome.absent))
    if welcome.differs:
        actions.append(Note("differs", welcome.differs))
    return member._replace(state=JOINED, rules=welcome, join_s=welcome.join_s)


def _started(member: Member, start: Start, actions: list[Action]) -> Member:
    """An epoch is begun once, and only if it is later than all that were seen."""
    if member.state != JOINED or start.epoch <= member.hello.epoch:
        return member
    actions.append(Launch(start))
    hello = member.hello._replace(
        epoch=start.epoch,
        nodes=start.nnodes,
        last=start.node_rank,
        total=start.total,
        used=start.used,
        place=start.place,
        launch=start.launch,
    )
    return member._replace(state=RUNNING, hello=hello, cause=None, silent=False)


def _stopped(member: Member, stop: Stop, actions: list[Action]) -> Member:
    if stop.epoch != member.hello.epoch:
        return member
    if member.state == RUNNING or (member.state == STOPPING and not stop.grace_s):
        actions.append(Halt(stop.cause, stop.grace_s))
        return member._replace(state=STOPPING, cause=stop.cause)
    if member.state == DONE:
        actions.append(Say(Idle(stop.epoch, member.hello.port, member.outcomes)))
        return member._replace(state=JOINED)
    return member


def _over(member: Member, end: End, actions: list[Action]) -> Member:
    if member.state not in (RUNNING, STOPPING):
        return _exit(member, end.status, end.cause, actions)
    if member.state == RUNNING:
        actions.append(Halt(end.cause or Cause("lost"), member.rules.failure_grace_s))
    return member._replace(state=STOPPING, end=end)


# What happens on this node


def _told(member: Member, number: int, at: float, actions: list[Action]) -> Member:
    """A signal to this launcher is for the whole gang, whose hub decides."""
    again = bool(member.leaving)
    member = member._replace(leaving=member.leaving or number)
    cause = Cause("signal", member.hello.host, number=number)
    if member.state in (SEEKING, GREETING):
        return _told_early(member, again, at, actions)
    if member.is_linked:
        actions.append(Say(Signalled(number, again)))
    if member.state == RUNNING:
        actions.append(Halt(cause, member.rules.grace_s))
        return member._replace(state=STOPPING, cause=cause)
    if again and member.state in (STOPPING, FENCED):
        actions.append(Halt(cause, 0.0))
    return member


def _told_early(member: Member, again: bool, at: float, actions: list[Action]) -> Member:
    """Tell the hub, if it is there: or it would wait for this launcher, and all others with it."""
    if again:
        return _left(member, actions)
    member = member._replace(left=at, hello=member.hello._replace(leaving=member.leaving))
    if member.is_linked:
        actions.append(Say(Signalled(member.leaving)))
    elif member.retry is not None:
        actions.append(Connect())
        member = member._replace(retry=None)
    return member


def _of_workers(member: Member, event: Event, at: float, actions: list[Action]) -> Member:
    epoch = member.hello.epoch
    match event:
        case WorkersEnded():
            return _workers_ended(member, event, at, actions)
        case WorkerFailed(rank, code, pid, age_s, words, oom):
            if member.state not in (RUNNING, STOPPING):
                return member
            age_s += member.trip_s / 2
            actions.append(Say(Failed(epoch, rank, code, pid, age_s, words, oom)))
            cause = Cause("failure", member.hello.host, rank, code)
            return member._replace(state=STOPPING, cause=member.cause or cause)
        case Quiet(is_so=is_so):
            if member.state == RUNNING and is_so != member.silent:
                actions.append(Say(Silent(epoch) if is_so else Talking(epoch)))
                return member._replace(silent=is_so)
        case StacksShown():
            if member.state == RUNNING:
                actions.append(Say(Stacked(epoch)))
    return member


def _workers_ended(member: Member, ended: WorkersEnded, at: float, actions: list[Action]) -> Member:
    member = member._replace(hello=member.hello._replace(port=ended.port))
    if member.state == FENCED:
        return _alone(member, at, actions)
    if member.end is not None:
        return _exit(member, member.end.status, member.end.cause, actions)
    if member.state == RUNNING and ended.well:
        actions.append(Say(Done(member.hello.epoch)))
        return member._replace(state=DONE, outcomes=ended.outcomes)
    actions.append(Say(Idle(member.hello.epoch, ended.port, ended.outcomes)))
    return member._replace(state=JOINED)
