"""The hub, which decides for the launchers of all nodes; one launcher of the launch has it.

JOINING   no workers run; launchers connect, and the next epoch begins when enough are ready
RUNNING   an epoch's workers run
STOPPING  the workers are being ended; after that the hub decides whether there is another epoch
ENDED     each launcher is told the status

Reports change what is known of the peers; `reconcile` decides what follows from that and from the
time, and gives each peer its Order. It goes through all peers, and is called once for all the
Reports of a turn of the event loop.
"""

from __future__ import annotations

from math import inf

from spawnlaunch.base import errors, records
from spawnlaunch.multinode import ranks, words
from spawnlaunch.multinode.messages import END, FINISHED, READY, RUN, STOP, UNABLE, WAIT, Order
from spawnlaunch.multinode.ranks import Peer
from spawnlaunch.outcome import failures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    from spawnlaunch.multinode.messages import Report
    from spawnlaunch.multinode.settings import Settings

    class Net(Protocol):
        """The hub's connections, by number, and the lines that its node prints."""

        place: str  # where it listens

        def say(self, conn: int, order: Order) -> None: ...

        def dismiss(self, conn: int) -> None:
            """End a connection, once its messages are sent."""

        def shut(self) -> None:
            """Accept no further launcher, now or later."""

        def tell(self, line: str) -> None: ...

        def tell_once(self, line: str) -> None:
            """Print a line at most once; a stranger's Report can cause it."""

        def line_again(self, rank: int, nproc: int) -> str:
            """The command line that starts a lost launcher again; -1, 0: any of them."""

        def compare(self, reports: Sequence[Report]) -> None:
            """Print where the ranks of all nodes hang."""


JOINING, RUNNING, STOPPING, ENDED = "joining", "running", "stopping", "ended"

TURN_S = 1.0  # at most between two looks at the time
TELL_S = 10.0  # between two lines that name the missing launchers
AGAIN_S = 1.0  # the same, where more are lost
CALL_S = 1.0  # for other launchers to connect, where no more are expected
CERTAIN_S = 0.5  # the kernel closes a guard's connection before it kills its workers
NOTICE_S = 3.0  # at most between the times at which the two ends notice a cut
RETURN_S = 3.0  # in which a launcher that has closed its connection connects again, if it lives
LEAVE_S = 1.0  # in which a signal that is for all nodes comes to all
STACKS_S = 30.0  # for all nodes to show their stacks
MISSED = 5  # beats that do not come before a launcher counts as possibly cut off
YOUNG_S = 30.0  # the hub's first seconds: launchers started with it may still be about to connect
NEAR_S = 10.0  # for these to connect, and to read that the launch has ended


class Missing(records.NamedTuple):
    """A launcher that will not come, the reason, and since when that counts."""

    report: Report
    cause: failures.Cause
    since: float


class Hub:
    """The state of all nodes, and the decisions about them."""

    def __init__(self, settings: Settings, net: Net, now: float) -> None:
        self.settings, self.net, self.now = settings, net, now
        self.phase, self.since = JOINING, now  # the phase, and when it began
        self.peers: dict[int, Peer] = {}  # by connection
        self.new: dict[int, Peer] = {}  # that are to be let in or refused
        self.epoch = 0
        self.size = 0  # number of nodes in it
        self.restart = 0  # starts of workers after the first
        self.used = 0  # restarts used, of those that are allowed
        self.is_out_of_time = False  # --timeout is over
        self.cause: failures.Cause | None = None  # of the end of the epoch
        self.failures: tuple[failures.Failure, ...] = ()  # of the epoch that may be the first
        self.lost: list[str] = []  # hosts lost while their workers ran
        self.holes: list[Peer] = []  # launchers of the epoch that are gone
        self.ends: dict[int, int] = {}  # of the epoch's workers: rank -> code
        self.missing: dict[object, Missing] = {}  # since the last epoch began
        self.fenced_until = 0.0  # workers of lost nodes may run until then
        self.again: list[failures.Cause] = []  # causes of epochs after which another began
        self.status = 0
        self._began_at = now
        self._stacks, self._asked_at, self._is_compared = 0, inf, False
        self._enough_at = inf  # since when enough launchers are ready
        self._named_at, self._name_at = -inf, now + TELL_S  # when the missing were, and will be
        self._note = ""  # for all that wait
        self.late = 0  # launchers that have not come, and are to be told of the end
        self._late_until = 0.0
        self._due = inf
        self._shared: dict[str, Order] = {}  # the last order of each action, for many peers

    # What happens

    def hear(self, conn: int, now: float) -> None:
        """Note that a launcher is alive; one that was mute may be about to lose its connection."""
        peer = self.peers.get(conn)
        if peer:
            if now - peer.heard_at > MISSED * self.settings.beat_s:
                peer.unsure_until = now + self.settings.lost_after_s
            peer.heard_at = now

    def take(self, conn: int, report: Report, addr: str, is_local: bool, now: float) -> None:
        """Take a launcher's Report; that of a new connection waits for `reconcile`."""
        peer = self.peers.get(conn)
        if peer is None:
            self.new[conn] = Peer(conn, report, addr, is_local, now)
            return
        peer.report = report
        if peer.epoch == self.epoch == report.epoch:
            for each in report.failures:
                cause = each.cause._replace(kind="failure", host=report.host)
                failure = failures.Failure(cause, now - each.age_s, each.early_s)
                self.failures = failures.kept(self.failures, failure)
            self.ends.update(report.ends)

    def lose(self, conn: int, is_certain: bool, now: float) -> None:
        """Remove a launcher whose connection has ended.

        `is_certain`: the other end has closed it, so that no worker runs there.
        """
        self.now = now
        if conn in self.new:  # it may be told to end, or unable
            self._admit()
        peer = self.peers.pop(conn, None)
        if peer is None or self.phase == ENDED:
            return
        settings, report = self.settings, peer.report
        if self.phase == JOINING and report.leaving:
            self._miss(report, _signal(peer), now)
        elif self.phase == JOINING and is_certain and not (report.is_restarted or self.epoch):
            self._miss(report, _lost(report.host), now + RETURN_S)
        if peer.epoch == self.epoch > 0:
            self.holes.append(peer)
            self._name_at = min(self._name_at, max(now, self._named_at + AGAIN_S))
        if self._is_busy(peer):
            self.lost.append(report.host)
            fence_s = CERTAIN_S if is_certain else NOTICE_S + settings.longest_grace_s
            self.fenced_until = max(self.fenced_until, now + fence_s)

    def end_unmet(self, cause: failures.Cause) -> None:
        """End the launch as this hub's own launcher cannot take part."""
        self._end(cause)
        self.late, self._late_until = self.settings.total - 1, self.now + NEAR_S

    # Who is let in

    def _admit(self) -> None:
        """Let new launchers in, or refuse them."""
        new, self.new = self.new, {}
        known = {peer.report.who: peer for peer in self.peers.values()} if new else {}
        given: dict[int, list[Peer]] = {}  # by node rank
        for peer in self.peers.values() if new else ():
            given.setdefault(peer.report.rank, []).append(peer)
        for peer in new.values():
            report = peer.report
            if other := known.pop(report.who, None):  # its old connection has not ended yet
                given[report.rank].remove(other)
                self.net.dismiss(other.conn)
                self.lose(other.conn, is_certain=True, now=self.now)
            same = given.setdefault(report.rank, [])
            cause = None if self.phase == ENDED else self._why_unfit(peer, same)
            if cause:
                self.net.say(peer.conn, Order(END, cause=cause, status=cause.status()))
                self.net.dismiss(peer.conn)
                self._count_out(report, cause)
                continue
            if differing := words.differing(report, self.settings.flags):
                self.net.tell_once(differing)
            self.missing.pop(_place_of(report), None)
            self.peers[peer.conn] = known[report.who] = peer
            same.append(peer)
            self.late -= self.phase == ENDED

    def _why_unfit(self, peer: Peer, same: list[Peer]) -> failures.Cause | None:
        """Why a launcher cannot take part; `same` have its node rank."""
        report = peer.report
        if report.state == UNABLE and report.cause:
            return report.cause._replace(kind="unable", host=report.host)
        if report.rank < 0:
            same = []
        if self.phase in (RUNNING, STOPPING):  # it may be this one before, whose workers die slowly
            here = (report.host, peer.addr)
            same = [p for p in same if (p.report.host, p.addr) != here]
        why = words.refusal(report, [p.report.host for p in same], self.settings)
        if why is None:
            return None
        return failures.Cause("refused", report.host, code=errors.WRONG_USE, words=why)

    def _count_out(self, report: Report, cause: failures.Cause) -> None:
        """Wait no longer for a launcher that cannot take part, unless it is started again.

        One whose place another launcher has may have been started twice: that ends nothing.
        """
        here, expected = [peer.report for peer in self.peers.values()], self.settings.expected
        is_awaited = report.rank < 0 or all(each.rank != report.rank for each in here)
        if expected:
            is_awaited &= report.host in set(expected) - {each.host for each in here}
        then = "nobody waits for it, as another one has its place"
        if is_awaited and len(self.peers) < self.settings.total:
            is_final = not report.is_restarted and not (self.epoch and self.settings.can_return)
            then = "waiting for it, as it is started again"
            if is_final:
                then = "the others go on without it"
            if is_final and self.phase != RUNNING:
                self._miss(report, cause, self.now)
                if self._is_impossible():
                    return  # the line at the launch's end says so
        self.net.tell_once(f"{cause.in_words}; {then}")

    def _miss(self, report: Report, cause: failures.Cause, since: float) -> None:
        self.missing[_place_of(report)] = Missing(report, cause, since)

    def _gone(self) -> list[Missing]:
        """The launchers that will not come."""
        return [each for each in self.missing.values() if self._is_past(each.since)]

    def _is_impossible(self) -> bool:
        """Whether too few nodes remain for an epoch, as some launchers will not come."""
        gone, settings = len(self._gone()), self.settings
        return gone > 0 and max(settings.total - gone, len(self.peers)) < settings.least

    # What follows

    def reconcile(self, now: float) -> float:
        """Decide, and give each peer its order; return when to do so again at the latest."""
        self.now, self._due = now, now + TURN_S
        for peer in [p for p in self.peers.values() if now - p.heard_at > self.settings.dead_s]:
            self.net.tell(f"{peer.report.host} has not answered for a minute, so it counts as lost")
            self.net.dismiss(peer.conn)
            self.lose(peer.conn, is_certain=False, now=now)
        self._admit()
        before = ""
        while before != self.phase:
            before = self.phase
            if self.phase == JOINING:
                self._join()
            elif self.phase == RUNNING:
                self._run()
            elif self.phase == STOPPING:
                self._stop()
        self._give_orders()
        return self._due

    def _is_past(self, when: float) -> bool:
        """Whether a time has come; if not, `reconcile` is called again then."""
        if self.now < when:
            self._due = min(self._due, when)
        return self.now >= when

    def _is_busy(self, peer: Peer) -> bool:
        """Whether a peer has workers, or is about to start them."""
        is_of_epoch = peer.epoch == self.epoch > 0 and self.phase in (RUNNING, STOPPING)
        is_through = peer.report.epoch == self.epoch and peer.report.state in (READY, FINISHED)
        return is_of_epoch and not is_through

    def _ready(self) -> list[Peer]:
        return [p for p in self.peers.values() if p.report.state == READY and not p.report.leaving]

    def _is_enough(self) -> bool:
        return len(self._ready()) >= self.settings.least

    def _join(self) -> None:
        """JOINING: begin the next epoch, or end the launch, or wait."""
        leaving = [peer for peer in self.peers.values() if peer.report.leaving]
        first = min(leaving, key=lambda peer: not peer.is_local, default=None)
        if first and (first.is_local or not self.settings.is_elastic):
            self._end(_signal(first))
            return
        self._let_go(leaving)
        if self.is_out_of_time:
            self._end(failures.Cause("timeout"))
        elif self._is_impossible():
            self._end(self._gone()[0].cause)
        elif not self._is_enough():
            self._enough_at = inf
            self._name_absent()
        else:
            self._enough_at = min(self._enough_at, self.now)
            if self._is_past(self.fenced_until) and self._is_time() and not self._is_one_cut_off():
                self._begin()

    def _is_time(self) -> bool:
        """Whether to begin with those that are ready, or to wait for more."""
        settings, ready = self.settings, self._ready()
        if len(ready) >= settings.total:
            return True
        if settings.may_replace_hub and not self.epoch:
            # Nodes of an earlier hub, which have not connected here, may still run workers.
            alone_s = settings.lost_after_s + NOTICE_S + settings.longest_grace_s
            if not self._is_past(self._began_at + alone_s):
                return False
        is_for_newcomers = self.cause is not None and self.cause.kind == "join"
        back = sum(peer.epoch == self.epoch for peer in ready)
        if self.epoch and back >= self.size and not is_for_newcomers:
            return True
        enough = settings.total - len(self._gone())
        if self.epoch:
            enough = min(enough, settings.most)
        is_first = not self.epoch and not settings.expected
        call_s = settings.last_call_s if is_first else CALL_S
        return len(ready) >= enough or self._is_past(self._enough_at + call_s)

    def _is_one_cut_off(self) -> bool:
        """Whether a launcher is cut off, or was until just now: kernels may end its connection.

        If the epoch began before, that would lose the launcher and with it the epoch.
        """
        mute_s = MISSED * self.settings.beat_s
        return any(
            self.now - peer.heard_at > mute_s or not self._is_past(peer.unsure_until)
            for peer in self.peers.values()
        )

    def _begin(self) -> None:
        """Begin an epoch with the peers that are ready."""
        settings = self.settings
        nodes = ranks.choose_nodes(self._ready(), settings.most)
        firsts, firsts_of_role, sizes = ranks.count_ranks(nodes)
        self.restart = self.restart + 1 if self.epoch else 0
        self.epoch, self.size = self.epoch + 1, len(nodes)
        for peer in self.peers.values():
            peer.node_rank = -1
        for node_rank, peer in enumerate(nodes):
            peer.epoch, peer.node_rank = self.epoch, node_rank
            peer.start = Order(
                RUN,
                self.epoch,
                node_rank,
                self.size,
                firsts[node_rank],
                firsts[-1],
                firsts_of_role[node_rank],
                sizes[peer.report.role],
                settings.master_addr or nodes[0].addr,
                settings.master_port or nodes[0].report.port,
                self.restart,
                settings.launch,
                self._stacks,
                settings.failure_grace_s,
            )
        if self.epoch > 1:
            self.net.tell(f"start {self.epoch}: {self.size} nodes, {firsts[-1]} workers")
        if not (settings.is_elastic or settings.max_restarts):
            self.net.shut()
        self.phase, self.since, self._enough_at = RUNNING, self.now, inf
        self.cause, self.failures, self.ends, self.missing = None, (), {}, {}
        self.lost, self.holes, self._asked_at, self._note = [], [], inf, ""

    def _run(self) -> None:
        """RUNNING: stop the epoch if anything has gone wrong, or end if all has gone well."""
        working = [peer for peer in self.peers.values() if peer.epoch == self.epoch]
        done = [peer for peer in working if peer.report.state == FINISHED]
        busy = [peer for peer in working if self._is_busy(peer)]
        leaving = [p for p in self.peers.values() if p.report.leaving]
        newcomers = [peer for peer in self._ready() if peer.epoch != self.epoch]
        if self.failures:
            self._begin_stop(failures.first(self.failures).cause)
        elif self.lost:
            self._begin_stop(_lost(self.lost[0]))
        elif told := [p for p in leaving if p.is_local or p.epoch == self.epoch]:
            self._begin_stop(_signal(told[0]))
        elif len(busy) + len(done) < len(working):  # workers have ended without a STOP
            ended = next(peer for peer in working if peer.report.state == READY)
            self._begin_stop(_lost(ended.report.host))
        elif self.is_out_of_time:
            self._begin_stop(failures.Cause("timeout"))
        elif not busy:
            self._end(None)
        elif newcomers and self.size < self.settings.most and not done:
            self._begin_stop(failures.Cause("join", newcomers[0].report.host))
        else:
            self._let_go(leaving)  # of spares: a signal to another node stops all
            self._look_for_hang(busy)

    def _look_for_hang(self, busy: list[Peer]) -> None:
        """Ask for stacks when all nodes are silent: a silent node may wait for another's ranks."""
        if not all(peer.report.is_silent for peer in busy):
            self._asked_at = inf
        elif self._asked_at == inf:
            self._stacks += 1
            self._asked_at, self._is_compared = self.now, False
        elif not self._is_compared:
            answers = [peer.report for peer in busy if peer.report.stacks == self._stacks]
            if len(answers) == len(busy) or self._is_past(self._asked_at + STACKS_S):
                self._is_compared = True
                self.net.compare(answers)
                if self.settings.ends_hung:
                    self._begin_stop(failures.Cause("hang"))

    def _begin_stop(self, cause: failures.Cause) -> None:
        self.phase, self.cause = STOPPING, cause._replace(after_s=self.now - self.since)
        self.since = self.now
        if cause.kind in words.STOPS:
            self.net.tell(f"{cause.host} {words.STOPS[cause.kind]}")

    def _stop(self) -> None:
        """STOPPING: once no worker runs, let launchers join for another epoch, or end."""
        working = [peer for peer in self.peers.values() if peer.epoch == self.epoch]
        if any(self._is_busy(p) or p.report.state == FINISHED for p in working):
            return
        given = self.cause or _lost("")
        is_signal = given.kind == "signal" and self._can_go_on(given)
        if is_signal and not self._is_past(self.since + LEAVE_S):
            return
        cause = _final_cause(given, self.failures, self.lost)
        used = self._used_after(cause)
        if used is None or not self._can_go_on(cause):
            self._end(cause)
            return
        if cause.kind in failures.FAULTS:
            self.net.tell(f"{cause.in_words}: restart {used} of {self.settings.max_restarts}")
        self.again.append(cause)
        self.phase, self.cause, self.used, self.since = JOINING, cause, used, self.now
        self._enough_at, self._named_at, self._name_at = inf, -inf, self.now

    def _used_after(self, cause: failures.Cause) -> int | None:
        """The restarts used if workers start again after this cause; None: they may not."""
        settings = self.settings
        if cause.kind not in failures.FAULTS:
            return self.used
        final = settings.final if cause.kind == "failure" else frozenset()
        most, window_s = settings.max_restarts, settings.window_s
        return failures.used_after(cause, self.used, most, window_s, final)

    def _can_go_on(self, cause: failures.Cause) -> bool:
        """Whether enough nodes may remain for another epoch."""
        leaving = [peer for peer in self.peers.values() if peer.report.leaving]
        if cause.kind == "timeout" or any(peer.is_local for peer in leaving):
            return False
        if cause.kind == "signal" or leaving:
            return self.settings.is_elastic and self._is_enough()
        return self._is_enough() or self.settings.can_return

    def _let_go(self, leaving: Sequence[Peer]) -> None:
        """Send an END to launchers that got a signal to end; the others stay."""
        for peer in leaving:
            cause = _signal(peer)
            self.net.say(peer.conn, Order(END, self.epoch, cause=cause, status=cause.status()))
            del self.peers[peer.conn]

    def _end(self, cause: failures.Cause | None) -> None:
        """End the launch for all; no workers run any more."""
        codes = self.ends.values() if self.phase == STOPPING else ()
        self.status = cause.status(codes) if cause else 0
        self._await_late()
        self.phase, self.cause, self.since = ENDED, cause, self.now

    def _await_late(self) -> None:
        """Wait for launchers that have not connected yet, to tell them that the launch has ended.

        Without that they would seek a hub until they give up.
        """
        settings, gone = self.settings, self._gone()
        until = min(self.now + NEAR_S, self._began_at + min(YOUNG_S, settings.join_s))
        late = settings.total - len(self.peers) - len(gone)
        if self.epoch or late <= 0 or self.now >= until:
            return
        self.late, self._late_until = late, until
        here = {p.report.host for p in self.peers.values()} | {each.report.host for each in gone}
        who = [host for host in settings.expected if host not in here]
        who = who or [f"{late} of {settings.total} nodes"]
        self.net.tell(f"the launch has ended: waiting some seconds to tell {failures.names(who)}")

    @property
    def is_over(self) -> bool:
        """Whether the launch has ended, and the hub waits for no launcher that has to be told."""
        return self.phase == ENDED and (self.late <= 0 or self._is_past(self._late_until))

    # Who is waited for

    def _name_absent(self) -> None:
        """Name the missing launchers every TELL_S; end the launch when the limit is over."""
        settings, peers = self.settings, self.peers.values()
        until = self.since + settings.join_s
        if not (self._is_past(until) or self._is_past(self._name_at)):
            return
        lost = ranks.find_lost(peers, self.holes)
        hosts = tuple(dict.fromkeys(peer.report.host for peer in lost))
        who = failures.names(hosts or ranks.name_absent(peers, settings.expected, settings.total))
        if self._is_past(until):
            if self.epoch:
                who += f"; nobody has come back within {settings.join_s:g} s"
            self._end(failures.Cause("absent", words=who))
            return
        if self._name_at != self._named_at + TELL_S:  # others are lost than before
            self._tell_lines_again(lost)
        self._note = words.waiting(who, self.net.place, until - self.now)
        self.net.tell(self._note)
        self._named_at, self._name_at = self.now, self.now + TELL_S

    def _tell_lines_again(self, lost: Sequence[Peer]) -> None:
        """Print the command lines that start lost launchers again, unless a manager does that."""
        for peer in lost[: 0 if self.settings.is_restarted else failures.MOST_NAMES]:
            line = self.net.line_again(peer.report.rank, peer.report.nproc)
            self.net.tell(f"{peer.report.host} was lost; start it there again: {line}")

    # Orders

    def _give_orders(self) -> None:
        """Send each peer its order, if it is another than before."""
        wait = self._share(Order(WAIT, self.epoch, note=self._note))
        is_hurried = any(peer.report.is_hurried for peer in self.peers.values())
        cause, settings = self.cause, self.settings
        is_fault = cause is not None and cause.kind in failures.FAULTS
        grace_s = settings.failure_grace_s if is_fault else settings.grace_s
        left_s = 0.0 if is_hurried else grace_s
        stop = self._share(Order(STOP, self.epoch, grace_s=left_s, cause=cause))
        end = self._share(Order(END, self.epoch, grace_s=grace_s, cause=cause, status=self.status))
        for peer in self.peers.values():
            order = wait
            if self.phase == ENDED:
                order = end
            elif peer.epoch == self.epoch > 0 and self.phase == STOPPING:
                order = stop
            elif peer.epoch == self.epoch > 0 and self.phase == RUNNING and peer.start:
                if peer.start.stacks != self._stacks:
                    peer.start = peer.start._replace(stacks=self._stacks)
                order = peer.start
            if order is not peer.order:
                peer.order = order
                self.net.say(peer.conn, order)

    def _share(self, order: Order) -> Order:
        """Return the same object for the same order, which is written as JSON once."""
        if self._shared.get(order.action) != order:
            self._shared[order.action] = order
        return self._shared[order.action]


def _place_of(report: Report) -> object:
    """The place of a launcher in the launch: its node rank, if one was given."""
    return report.rank if report.rank >= 0 else report.who


def _lost(host: str) -> failures.Cause:
    return failures.Cause("lost", host)


def _signal(peer: Peer) -> failures.Cause:
    return failures.Cause("signal", peer.report.host, code=-peer.report.leaving)


def _final_cause(
    given: failures.Cause, failed: Sequence[failures.Failure], lost: Sequence[str]
) -> failures.Cause:
    """Return the cause of an epoch's end, after all failures and lost nodes are known.

    Where a node is lost and all failures are those of its victims, the lost node is the cause.
    """
    others = failures.folded(lost)
    if given.kind == "failure" and failed:
        first = failures.first(failed)
        if lost and first.order in (failures.VICTIM, failures.ABORT):
            return failures.Cause("lost", lost[0], lost=others, after_s=given.after_s)
        given = first.cause._replace(after_s=given.after_s)
    return given._replace(lost=others)
