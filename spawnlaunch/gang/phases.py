"""What the hub concludes from what it knows: begin, stop, go on, end. Pure."""

from __future__ import annotations

from spawnlaunch.gang import roster, verdict
from spawnlaunch.gang.hub_records import ENDED, JOINING, RUNNING, STOPPING, Action, Hub, Note, Say
from spawnlaunch.gang.messages import Begun, Cause, End, Stacks, Start, Stop, Waiting
from spawnlaunch.gang.roster import BUSY, DONE, IDLE, Node
from spawnlaunch.gang.words import caused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

TELL_S = 10.0  # between two lines that name who is missing
CALL_S = 1.0  # for others to come, where no more are expected
NOTICE_S = 3.0  # between the two ends' notice of a cut
STACKS_S = 30.0  # for all nodes to show their stacks
YOUNG_S = 30.0  # from the hub's beginning: other launchers were started with it, and may be near
NEAR_S = 10.0  # for these to come, and to hear that it has ended


def times(hub: Hub) -> Iterator[float]:
    """When conclusions may be other than they are now, though nothing happens."""
    settings = hub.settings
    if hub.began is not None and settings.timeout_s:
        yield hub.began + settings.timeout_s
    yield from (node.heard + settings.dead_s for node in hub.nodes.values())
    if hub.phase == JOINING:
        yield from (fence.until for fence in hub.fences)
        yield from (hub.told + TELL_S, hub.since + settings.join_s, _free(hub))
        if hub.called is not None:
            yield hub.called + _call_s(hub)
    elif hub.phase == STOPPING:
        yield hub.since + verdict.LEAVE_S
    elif hub.phase == ENDED:
        yield hub.until
    elif hub.asked is not None:
        yield hub.asked + STACKS_S


def settled(hub: Hub, at: float, actions: list[Action]) -> Hub:
    """The hub, once it has drawn its conclusions."""
    phase = None
    while hub.phase != phase:
        phase = hub.phase
        if phase == JOINING:
            hub = _joining(hub, at, actions)
        elif phase == RUNNING:
            hub = _running(hub, at, actions)
        elif phase == STOPPING and all(node.state == IDLE for node in hub.nodes.values()):
            hub = _all_stopped(hub, at, actions)
    return hub


def stopped(hub: Hub, cause: Cause, at: float, actions: list[Action]) -> Hub:
    """Tell all workers to end."""
    is_fault = cause.kind in verdict.FAULTS
    grace_s = hub.settings.failure_grace_s if is_fault else hub.settings.grace_s
    stop = Stop(hub.epoch, cause, grace_s)
    actions += [Say(conn, stop) for conn, node in hub.nodes.items() if node.state != IDLE]
    actions.append(Note("stop", (cause.kind, cause.host)))
    return hub._replace(phase=STOPPING, cause=cause, healthy_s=at - hub.since, since=at)


def _ended(hub: Hub, cause: Cause | None, at: float, actions: list[Action]) -> Hub:
    """Tell everybody the status. Nobody has workers now."""
    status = verdict.status(cause, hub.outcomes) if cause else 0
    actions += [Say(conn, End(status, cause, hub.total)) for conn in hub.nodes]
    hub = _expecting(hub, at, actions)
    return hub._replace(phase=ENDED, cause=cause, status=status, since=at)


def _expecting(hub: Hub, at: float, actions: list[Action]) -> Hub:
    """Before the first epoch: launchers that come now would seek a hub until they give up."""
    until = min(at + NEAR_S, hub.since + min(YOUNG_S, hub.settings.join_s))
    late = hub.settings.total - len(hub.nodes)
    if hub.epoch or late <= 0 or at >= until:
        return hub
    here = {node.hello.host for node in hub.nodes.values()}
    absent = [host for host in hub.settings.expected if host not in here]
    actions.append(Note("late", (*absent,) or (f"{late} of {hub.settings.total} nodes",)))
    return hub._replace(late=late, until=until)


def _is_out_of_time(hub: Hub, at: float) -> bool:
    limit_s = hub.settings.timeout_s
    return bool(limit_s and hub.began is not None and at >= hub.began + limit_s)


def _is_enough(hub: Hub) -> bool:
    """Whether there are enough nodes for an epoch, one of which may run at a time.

    At least half of the last epoch's nodes have to be here: had another hub most of them, it could
    begin an epoch too.
    """
    count = min(len(roster.ready(hub.nodes)), hub.settings.most)
    return count >= hub.settings.least and 2 * count >= hub.size


def _joining(hub: Hub, at: float, actions: list[Action]) -> Hub:
    leaving = [node for node in hub.nodes.values() if node.leaving]
    if leaving:
        first = min(leaving, key=lambda node: not node.local)
        cause = Cause("signal", first.hello.host, number=first.leaving)
        if first.local or not hub.settings.is_elastic:
            return _ended(hub._replace(outcomes=()), cause, at, actions)
        hub = _left(hub, actions)
    if _is_out_of_time(hub, at):
        return _ended(hub, Cause("timeout"), at, actions)
    hub = hub._replace(fences=tuple(fence for fence in hub.fences if fence.until > at))
    if not _is_enough(hub):
        return _missing(hub._replace(called=None), at, actions)
    if hub.called is None:
        hub = hub._replace(called=at)
    if hub.fences or not _is_time(hub, at):
        return hub
    if hub.epoch == 0 and hub.floor:  # the hub before this one was lost, as any node may be
        used = verdict.used_after(Cause("lost"), hub.used, 0.0, hub.settings)
        if used is None:
            return _ended(hub, Cause("lost", words="the hub before"), at, actions)
        hub = hub._replace(used=used)
    return _started(hub, at, actions)


def _missing(hub: Hub, at: float, actions: list[Action]) -> Hub:
    """Say every TELL_S who is missing. After `join_s` the launch ends."""
    absent = roster.absent(hub.nodes, hub.settings.expected, hub.settings.total)
    if at >= hub.since + hub.settings.join_s:
        return _ended(hub, Cause("absent", words=", ".join(absent)), at, actions)
    if at < max(hub.told, hub.since) + TELL_S:
        return hub
    actions += [Say(conn, Waiting(absent)) for conn in hub.nodes]
    actions.append(Note("waiting", absent))
    return hub._replace(told=at)


def _call_s(hub: Hub) -> float:
    """How long others have to come, once enough are there."""
    is_first = not hub.floor and not hub.settings.expected
    return hub.settings.last_call_s if is_first else CALL_S


def _free(hub: Hub) -> float:
    """Until when another hub's workers may run on nodes that have not come; 0: there are none.

    A hub that may have been started anew does not know whether there was another one before it, as
    the nodes that could tell may be cut off. Those lost the other hub before this one began, or
    noticed soon after, and then end their workers within the grace.
    """
    settings = hub.settings
    if hub.epoch or not settings.returns:
        return 0.0
    return hub.since + settings.lost_after_s + NOTICE_S + settings.longest_grace_s


def _is_time(hub: Hub, at: float) -> bool:
    """Whether the epoch begins now. Enough nodes are there; others may be waited for."""
    ready = roster.ready(hub.nodes).values()
    if len(ready) >= hub.settings.total:
        return True
    are_all_back = hub.size > 0 and sum(node.rank >= 0 for node in ready) >= hub.size
    if not are_all_back and at < _free(hub):
        return False
    is_for_newcomers = hub.cause is not None and hub.cause.kind == "join"
    if are_all_back and not is_for_newcomers:
        return True
    if hub.epoch and len(ready) >= hub.settings.most:
        return True
    return hub.called is not None and at >= hub.called + _call_s(hub)


def _started(hub: Hub, at: float, actions: list[Action]) -> Hub:
    """Begin an epoch."""
    settings = hub.settings
    order = roster.chosen(hub.nodes, settings.most)
    firsts = roster.first_ranks(hub.nodes, order)
    leader = hub.nodes[order[0]]
    epoch = max(hub.epoch, hub.floor) + 1
    total = hub.total + 1 if epoch > 1 else 0
    ranks = {conn: node_rank for node_rank, conn in enumerate(order)}
    place, launch = hub.place or roster.place(hub.nodes, settings.launch)
    actions += [
        Say(
            conn,
            Start(
                epoch=epoch,
                node_rank=node_rank,
                nnodes=len(order),
                first_rank=firsts[node_rank],
                world_size=firsts[-1],
                master_addr=settings.master_addr or leader.addr,
                master_port=settings.master_port or leader.hello.port,
                total=total,
                used=hub.used,
                place=place,
                launch=launch,
            ),
        )
        for conn, node_rank in ranks.items()
    ]
    begun = Begun(epoch, len(order), total, hub.used)
    actions += [Say(conn, begun) for conn in hub.nodes if conn not in ranks]
    actions.append(Note("start", (str(epoch), str(len(order)), str(firsts[-1]))))
    nodes = {conn: _put(node, ranks.get(conn, -1)) for conn, node in hub.nodes.items()}
    return hub._replace(
        phase=RUNNING, nodes=nodes, epoch=epoch, floor=epoch, size=len(order), total=total,
        since=at, called=None, cause=None, failure=None, lost=(), outcomes=(),
        place=(place, launch), asked=None, began=at if hub.began is None else hub.began,
    )  # fmt: skip


def _put(node: Node, rank: int) -> Node:
    state = BUSY if rank >= 0 else IDLE
    return node._replace(rank=rank, state=state, silent=False, stacked=False)


def _running(hub: Hub, at: float, actions: list[Action]) -> Hub:
    if _is_out_of_time(hub, at):
        return stopped(hub, Cause("timeout"), at, actions)
    busy = [node for node in hub.nodes.values() if node.state == BUSY]
    if not busy:
        return _ended(hub, None, at, actions)
    if any(node.leaving for node in hub.nodes.values()):  # spares: others' signals stop all
        hub = _left(hub, actions)
    is_ending = any(node.state == DONE for node in hub.nodes.values())
    newcomers = list(roster.ready(hub.nodes).values())
    if newcomers and hub.size < hub.settings.most and not is_ending:
        return stopped(hub, Cause("join", newcomers[0].hello.host), at, actions)
    return _looked_for_hang(hub, busy, at, actions)


def _looked_for_hang(hub: Hub, busy: list[Node], at: float, actions: list[Action]) -> Hub:
    """Ask for the stacks once all nodes are silent. One alone may wait for another's ranks."""
    if not all(node.silent for node in busy):
        return hub
    if hub.asked is None:
        actions += [
            Say(conn, Stacks(hub.epoch)) for conn, node in hub.nodes.items() if node.state == BUSY
        ]
        actions.append(Note("silent"))
        return hub._replace(asked=at)
    are_shown = all(node.stacked for node in busy) or at >= hub.asked + STACKS_S
    if are_shown and hub.settings.ends_hung:
        return stopped(hub, Cause("hang"), at, actions)
    return hub


def _all_stopped(hub: Hub, at: float, actions: list[Action]) -> Hub:
    """Nobody runs: end the launch, or let launchers join for another epoch."""
    settings = hub.settings
    cause = verdict.cause(hub.cause or Cause("lost"), hub.failure, hub.lost)
    can_go_on = not any(node.leaving and node.local for node in hub.nodes.values())
    used: int | None = hub.used
    if cause.kind == "timeout":
        can_go_on = False
    elif cause.kind == "signal":
        can_go_on = can_go_on and settings.is_elastic and _is_enough(hub)
        if can_go_on and at < hub.since + verdict.LEAVE_S:
            return hub
    else:
        used = verdict.used_after(cause, hub.used, hub.healthy_s, settings)
        can_go_on = can_go_on and (_is_enough(hub) or settings.returns)
        if any(node.leaving for node in hub.nodes.values()):
            can_go_on = can_go_on and settings.is_elastic and _is_enough(hub)
    if not can_go_on or used is None:
        return _ended(hub, cause, at, actions)
    hub = _left(hub, actions)
    words = (cause.kind, cause.host, *map(str, (cause.rank, cause.number, hub.healthy_s, used)))
    actions.append(Note("again", (*words, caused(cause))))
    return hub._replace(phase=JOINING, cause=cause, used=used, since=at, called=None)


def _left(hub: Hub, actions: list[Action]) -> Hub:
    """Send an End to launchers that were told to end; the others go on."""
    for conn, node in hub.nodes.items():
        if node.leaving:
            signal = Cause("signal", node.hello.host, number=node.leaving)
            actions.append(Say(conn, End(128 + node.leaving, signal, hub.total)))
    return hub._replace(nodes={c: node for c, node in hub.nodes.items() if not node.leaving})
