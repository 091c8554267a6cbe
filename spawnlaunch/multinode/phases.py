"""The state of the hub, and its decisions: begin, stop, continue, end.

JOINING   no workers run; launchers connect, and the next epoch begins when enough are ready
RUNNING   an epoch's workers run
STOPPING  the workers are being ended; after that the hub decides whether there is another epoch
ENDED     the hub has sent the status to all members

A message to all takes time linear in the number of nodes. The time for any other event does not
grow with that number, even while some nodes are silent, missing or lost.
"""

from __future__ import annotations

from math import inf

from spawnlaunch.base import records
from spawnlaunch.multinode import deadlines, messages, roster, rules, words
from spawnlaunch.outcome import failures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Protocol

    from spawnlaunch.multinode.settings import Settings

    class Net(Protocol):
        """The hub's connections, by number, and the lines that its node prints."""

        place: str  # where it listens

        def send(self, conn: int, message: messages.ToMember) -> None: ...

        def dismiss(self, conn: int) -> None:
            """End a connection, once its messages are sent."""

        def shut(self) -> None:
            """Accept no further launcher, now or later."""

        def linger(self) -> None:
            """Wait some seconds for the members to read the End, then drop their connections."""

        def print_line(self, line: str) -> None: ...

        def print_once(self, line: str) -> None:
            """Print a line at most once; a stranger's Hello can cause it."""

        def start_line(self, node_rank: int, nproc: int) -> str:
            """The command line that starts a lost launcher again; -1, 0: any of them."""

        def compare(self, reports: Sequence[messages.Stacked]) -> None:
            """Print where the ranks of all nodes hang."""


JOINING, RUNNING, STOPPING, ENDED = "joining", "running", "stopping", "ended"

NEWS_S = 1.0  # the same, where more are lost
MISSED = 5  # beats that do not come before a launcher counts as possibly cut off
CALL_S = 1.0  # for other launchers to connect, where no more are expected
NOTICE_S = 3.0  # at most between the times at which the two ends notice a cut
LEAVE_S = 1.0  # in which a signal that is for all nodes comes to all
STACKS_S = 30.0  # for all nodes to show their stacks
YOUNG_S = 30.0  # the hub's first seconds: launchers started with it may still be about to connect
NEAR_S = 10.0  # for these to connect, and to read that the launch has ended


class Fence(records.NamedTuple):
    """A lost launcher with workers that may still run for a time."""

    launcher_id: str
    host: str
    boot: str
    addr: str


class WillNotConnect(records.NamedTuple):
    """A launcher that will not connect, with the reason."""

    hello: messages.Hello
    cause: failures.Cause


class Phases(rules.Rules):
    """The hub's state and decisions; `Hub` adds the events."""

    def __init__(
        self,
        settings: Settings,
        net: Net,
        clock: Callable[[], float],
        wake: Callable[[float | None], None],
    ) -> None:
        super().__init__(clock, wake)
        self.settings, self.net = settings, net
        self.phase, self.since = JOINING, self.now  # the phase, and when it began
        self.nodes = roster.Nodes(settings.dead_s)
        self._arrivals = 0
        self.epoch = 0  # the last epoch that this hub began
        self.floor = 0  # the highest epoch that any member has seen
        self._begun: messages.Begun | None = None  # the last; for nodes without a part in it
        self.size = 0  # number of nodes in the last epoch
        self.restart_count = 0  # starts of workers after the first
        self.used = 0  # restarts used, of those that are allowed
        self._called = inf  # since when enough launchers are ready
        self._named_at = -inf  # when the missing were named last, and will be next
        self._names_next_at = self.since + rules.FIRST_NAMING_S
        self._has_news = False  # some lost launchers were not named yet
        self.fences = deadlines.Deadlines()
        self._fences_of: dict[str, list[Fence]] = {}  # by host
        # By launcher, since the last epoch began; those lost just now may connect again until then.
        self.will_not_connect: dict[str, WillNotConnect] = {}
        self._not_connecting_by_node_rank: dict[int, str] = {}
        self._may_connect_again = deadlines.Deadlines()
        self._expected = frozenset(settings.expected)
        self.began: float | None = None  # when the first epoch began; the clock counts sleep
        self.cause: failures.Cause | None = None  # of the epoch that ends
        self.failures: tuple[failures.Failure, ...] = ()  # candidates for the first failure
        self.lost_hosts: list[str] = []  # hosts lost since the epoch began
        self._lost_peers: list[roster.Peer] = []  # launchers lost since the epoch began
        self._launch_name = ""  # the launch's name
        self.outcomes: list[tuple[int, int]] = []  # of the epoch's workers
        self.stacks_at: float | None = None  # when the hub last asked for stacks
        self.stack_reports: dict[int, messages.Stacked] = {}  # the answers to that, by connection
        self._is_compared = False
        self._is_hurried = False  # the members were ordered to end workers without grace
        self.restart_causes: list[failures.Cause] = []  # causes of epochs after which another began
        self.status = 0
        # Launchers that have not connected yet, and are to be told of the end.
        self.unconnected_count = 0
        self._until = 0.0  # until when the hub waits for them

    @property
    def is_over(self) -> bool:
        """Whether the launch has ended, and the hub waits for no launcher that has to be told."""
        return self.phase == ENDED and (self.unconnected_count <= 0 or self.now >= self._until)

    def _times(self) -> Iterator[float]:
        settings = self.settings
        if self.began is not None and settings.timeout_s:
            yield self.began + settings.timeout_s - self.slept
        yield self.nodes.dead.first()[0]
        if self.phase == JOINING:
            for each in (self.fences, self.nodes.unsure, self._may_connect_again):
                yield each.first()[0]
            yield from (self._names_next_at, self.since + self._limit_s, self._safe_at)
            yield self._called + self._call_s
        elif self.phase == STOPPING:
            yield self.since + LEAVE_S
        elif self.phase == ENDED:
            yield self._until
        elif self.stacks_at is not None:
            yield self.stacks_at + STACKS_S

    def _conclude(self) -> None:
        phase = None
        while self.phase != phase:
            phase = self.phase
            if phase == JOINING:
                self._join()
            elif phase == RUNNING:
                self._run()
            elif phase == STOPPING:
                self._go_on_or_end()

    def _stop(self, cause: failures.Cause) -> None:
        """Send a Stop to all nodes with workers: they end them within the grace."""
        settings, is_fault = self.settings, cause.kind in failures.RESTARTABLE_KINDS
        grace_s = settings.failure_grace_s if is_fault else settings.grace_s
        self.phase, self.cause = STOPPING, cause._replace(after_s=self.now - self.since)
        self.since = self.now
        self._send_to_busy(messages.Stop(self.epoch, cause, grace_s))
        if cause.kind in words.STOPS:
            self.net.print_line(f"{cause.host} {words.STOPS[cause.kind]}")

    def _send_to_busy(self, message: messages.ToMember) -> None:
        """Send a message to the nodes with workers that run, or have ended by themselves."""
        for conn in (*self.nodes.of(roster.BUSY), *self.nodes.of(roster.DONE)):
            self.net.send(conn, message)

    def _end(self, cause: failures.Cause | None) -> None:
        """Send the status to all members; no workers run any more."""
        self.status = cause.status(code for _, code in self.outcomes) if cause else 0
        end = messages.End(self.status, cause, self.restart_count)
        for conn in self.nodes:
            self.net.send(conn, end)
        self._expect()
        self.phase, self.cause, self.since = ENDED, cause, self.now
        self.net.linger()

    def _expect(self) -> None:
        """Wait for launchers that have not connected, to tell them that the launch has ended.

        Without that they would seek a hub until they give up. Only before the first epoch, and not
        where this launcher was a member of another hub: then the others were connected to it, too.
        """
        settings, nodes, no_more = self.settings, self.nodes.values(), self._surely_not_connecting()
        local = self.nodes.of(roster.LOCAL).values()
        until = min(self.now + NEAR_S, self.since + min(YOUNG_S, settings.join_s))
        count = settings.most_launchers - len(nodes) - len(no_more)
        was_member = any(node.hello.epoch for node in local)
        if was_member or self.epoch or count <= 0 or self.now >= until:
            return
        self.unconnected_count, self._until = count, until
        known = {node.hello.host for node in nodes} | {each.hello.host for each in no_more}
        names = [host for host in settings.expected if host not in known]
        names = names or [f"{count} of {settings.most_launchers} nodes"]
        self.net.print_line(
            f"the launch has ended: waiting up to {until - self.now:.0f} s to tell "
            f"{failures.names(names)}"
        )

    def _is_out_of_time(self) -> bool:
        """Whether --timeout is over; time in which the machine slept counts, as for a manager."""
        limit_s = self.settings.timeout_s
        return bool(limit_s and self.began is not None and self.time >= self.began + limit_s)

    def _is_enough(self) -> bool:
        """Whether enough nodes are ready for an epoch.

        At least half of the last epoch's nodes have to be here: another hub with most of them could
        begin an epoch too, and only one may run at a time.
        """
        count = min(len(self.nodes.of(roster.READY)), self.settings.most)
        return count >= self.settings.least and 2 * count >= self.size

    # Launchers connect

    def _join(self) -> None:
        leaving = self.nodes.of(roster.LEAVING).values()
        first = min(leaving, key=lambda node: not node.is_local, default=None)
        if first and (first.is_local or not self.settings.is_elastic):  # its signal ends the launch
            self.outcomes = []
            self._end(failures.Cause("signal", first.hello.host, code=-first.end_signal))
            return
        self._let_go()
        for times in (self.fences, self.nodes.unsure, self._may_connect_again):
            times.due(self.now)
        if self._is_out_of_time():
            self._end(failures.Cause("timeout"))
        elif self._is_impossible():
            self.outcomes = []
            self._end(self._surely_not_connecting()[0].cause)
        elif not self._is_enough():
            self._called = inf
            self._name_not_yet_connected()
        else:
            self._called = min(self._called, self.now)
            if not self.fences and self._is_time() and not self._may_be_cut_off():
                self._begin_epoch()

    def _surely_not_connecting(self) -> list[WillNotConnect]:
        """The launchers that will not connect."""
        return [
            each
            for name, each in self.will_not_connect.items()
            if name not in self._may_connect_again
        ]

    @property
    def _count_not_connecting(self) -> int:
        return len(self.will_not_connect) - len(self._may_connect_again)

    def _is_impossible(self) -> bool:
        """Whether too few nodes remain for an epoch, as some launchers will not connect."""
        count, settings = self._count_not_connecting, self.settings
        return count > 0 and max(settings.most_launchers - count, len(self.nodes)) < settings.least

    def _name_not_yet_connected(self) -> None:
        """Name the missing launchers every NAMING_S; end the launch when the limit is over."""
        limit_s = self._limit_s
        if self.now >= self.since + limit_s:
            names = failures.names(self._not_yet_connected())
            if self.floor:
                names += f"; nobody has come back within {limit_s:g} s"
            self._end(failures.Cause("absent", words=names))
            return
        if self.now < self._names_next_at:
            return
        names = failures.names(self._not_yet_connected())
        if self._has_news:
            message = messages.Waiting(names, return_s=limit_s)
            lines = self._return_lines(names, limit_s)
        else:
            left_s = self.since + limit_s - self.now
            message = messages.Waiting(names, left_s)
            lines = [words.waiting(names, self.net.place, left_s)]
        self._named_at, self._names_next_at, self._has_news = (
            self.now,
            self.now + rules.NAMING_S,
            False,
        )
        for conn in self.nodes:
            self.net.send(conn, message)
        for line in lines:
            self.net.print_line(line)

    def _lose_more(self) -> None:
        """Name the missing launchers soon, as one more is lost; several are named together."""
        self._has_news = self.epoch > 0
        self._names_next_at = min(self._names_next_at, max(self.now, self._named_at + NEWS_S))

    def _return_lines(self, names: str, limit_s: float) -> list[str]:
        """The lines about lost launchers, each with the command line that starts it again."""
        if self.settings.is_restarted_by_manager:  # the pods' manager restarts them
            return [words.return_line(limit_s, names)]
        lost_peers = sorted(
            roster.not_back(self.nodes, self._lost_peers), key=lambda node: node.node_rank
        )
        launchers = [
            (node.hello.host, node.hello.given_node_rank, node.hello.nproc) for node in lost_peers
        ]
        return [
            words.return_line(limit_s, host, self.net.start_line(node_rank, nproc))
            for host, node_rank, nproc in launchers[: failures.MOST_NAMES] or [(names, -1, 0)]
        ]

    def _not_yet_connected(self) -> tuple[str, ...]:
        """The names of the missing nodes: the lost ones, where they are known."""
        lost_peers = roster.not_back(self.nodes, self._lost_peers) if self.epoch else ()
        hosts = tuple(dict.fromkeys(node.hello.host for node in lost_peers))
        return hosts or roster.not_yet_connected(
            self.nodes, self.settings.expected, self.settings.most_launchers
        )

    def _may_return(self) -> bool:
        """Whether a launcher that is lost now, or cannot be a member, may be started again."""
        return self.settings.return_s > 0 if self.floor else self.settings.is_restarted_by_manager

    @property
    def _limit_s(self) -> float:
        """The seconds to wait for launchers: for all at first, later for lost ones."""
        settings = self.settings
        return settings.return_s if self.floor and settings.return_s else settings.join_s

    @property
    def _call_s(self) -> float:
        """The seconds that other launchers have to connect, once enough are ready."""
        is_first = not self.floor and not self.settings.expected
        return self.settings.last_call_s if is_first else CALL_S

    @property
    def _safe_at(self) -> float:
        """The time after which no other hub's workers can run; 0: there are none.

        If this hub replaces a lost one, nodes that have not connected here may run that hub's
        workers. They notice its loss at the latest `lost_after_s` and NOTICE_S after this hub
        began, and then end their workers within the grace. A hub that was started by hand is
        probably the first: it waits only if a member knows an earlier epoch.
        """
        settings = self.settings
        if self.epoch or not (settings.is_restarted_by_manager or self.floor):
            return 0.0
        return self.since + settings.lost_after_s + NOTICE_S + settings.longest_grace_s

    def _is_time(self) -> bool:
        """Whether to begin the epoch now, with enough nodes, or to wait for more."""
        ready, settings = len(self.nodes.of(roster.READY)), self.settings
        if ready >= settings.most_launchers:
            return True
        are_all_back = self.size > 0 and len(self.nodes.of(roster.RANKED)) >= self.size
        if not are_all_back and self.now < self._safe_at:
            return False
        is_for_newcomers = self.cause is not None and self.cause.kind == "join"
        if are_all_back and not is_for_newcomers:
            return True
        enough = settings.most_launchers - self._count_not_connecting
        if self.epoch:
            enough = min(enough, settings.most)
        return ready >= enough or self.now >= self._called + self._call_s

    def _may_be_cut_off(self) -> bool:
        """Whether a launcher is cut off, or was until just now: kernels may end its connection.

        Then it connects again; if the epoch began before, that would lose the launcher and with it
        the epoch.
        """
        _, conn = self.nodes.dead.first()  # the launcher with the oldest last message
        return self.is_mute(self.nodes[conn]) or len(self.nodes.unsure) > 0

    def is_mute(self, node: roster.Peer) -> bool:
        return self.now - node.last_message_at > MISSED * self.settings.beat_s

    def _begin_epoch(self) -> None:
        if self.epoch == 0 and self.floor:  # the loss of the earlier hub counts as a lost node
            used = _used_after(failures.Cause("lost"), self.used, self.settings)
            if used is None:
                self._end(failures.Cause("lost", words="the hub before"))
                return
            self.used = used
        settings, nodes = self.settings, self.nodes
        order = roster.chosen(nodes.of(roster.READY), settings.most)
        self._launch_name = self._launch_name or roster.launch_name(nodes, settings.launch_name)
        self.epoch = self.floor = max(self.epoch, self.floor) + 1
        self.restart_count = self.restart_count + 1 if self.epoch > 1 else 0
        self.size = len(order)
        workers = self._send_starts(order)
        self._begun = messages.Begun(self.epoch, self.size, self.restart_count, self.used)
        for conn in sorted(nodes.keys() - set(order)):
            nodes.begin(conn, -1)
            self.net.send(conn, self._begun)
        if self.epoch > 1:
            self.net.print_line(f"start {self.epoch}: {self.size} nodes, {workers} workers")
        if not (settings.is_elastic or settings.max_restarts):
            self.net.shut()
        self.phase, self.since, self._called = RUNNING, self.now, inf
        self.began = self.time if self.began is None else self.began
        self.cause = self.stacks_at = None
        self.failures, self.lost_hosts, self._is_hurried = (), [], False
        self._lost_peers, self.outcomes = [], []
        self.will_not_connect, self._not_connecting_by_node_rank, self._fences_of = {}, {}, {}
        self._may_connect_again = deadlines.Deadlines()

    def _send_starts(self, order: list[int]) -> int:
        """Send each of these nodes its Start; return the number of workers."""
        settings, nodes = self.settings, self.nodes
        firsts, roles = roster.first_ranks(nodes, order), roster.roles(nodes, order)
        leader = nodes[order[0]]
        for node_rank, conn in enumerate(order):
            start = messages.Start(
                epoch=self.epoch,
                node_rank=node_rank,
                nnodes=self.size,
                first_rank=firsts[node_rank],
                world_size=firsts[-1],
                master_addr=settings.master_addr or leader.addr,
                master_port=settings.master_port or leader.hello.port,
                restart_count=self.restart_count,
                used=self.used,
                launch_name=self._launch_name,
                role_rank=roles[conn][0],
                role_size=roles[conn][1],
            )
            nodes.begin(conn, node_rank)
            self.net.send(conn, start)
        return firsts[-1]

    # Workers run

    def _run(self) -> None:
        nodes = self.nodes
        if self._is_out_of_time():
            self._stop(failures.Cause("timeout"))
            return
        if not nodes.of(roster.BUSY):
            self._end(None)
            return
        self._let_go()  # only spares: a signal to another node stops all
        newcomers = nodes.of(roster.READY)
        if newcomers and self.size < self.settings.most and not nodes.of(roster.DONE):
            newcomer = next(iter(newcomers.values()))
            self._stop(failures.Cause("join", newcomer.hello.host))
        else:
            self._look_for_hang()

    def _look_for_hang(self) -> None:
        """Ask for stacks when all nodes are silent: a silent node may wait for another's ranks."""
        busy = self.nodes.of(roster.BUSY)
        if len(self.nodes.of(roster.SILENT)) < len(busy):
            return
        if self.stacks_at is None:
            self.stacks_at, self.stack_reports, self._is_compared = self.now, {}, False
            for conn in list(busy):
                self.nodes.change(conn, has_shown_stacks=False)
                self.net.send(conn, messages.Stacks(self.epoch))
        elif (
            len(self.nodes.of(roster.STACKED)) == len(busy) or self.now >= self.stacks_at + STACKS_S
        ) and not self._is_compared:
            self._is_compared = True
            self.net.compare([*self.stack_reports.values()])
            if self.settings.ends_hung:
                self._stop(failures.Cause("hang"))

    def _go_on_or_end(self) -> None:
        """End the launch, or let launchers join for another epoch, once no worker runs."""
        if self.nodes.of(roster.BUSY) or self.nodes.of(roster.DONE):
            return
        reason = self.cause or failures.Cause("lost")
        if reason.kind == "signal" and self.now < self.since + LEAVE_S and self._can_go_on(reason):
            return
        cause = _cause(reason, self.failures, self.lost_hosts)
        used = _used_after(cause, self.used, self.settings)
        if used is None or not self._can_go_on(cause):
            self._end(cause)
            return
        self._let_go()
        if cause.kind in failures.RESTARTABLE_KINDS:
            self.net.print_line(f"{cause.in_words}: restart {used} of {self.settings.max_restarts}")
        self.restart_causes.append(cause)
        self.phase, self.cause, self.used, self.since = JOINING, cause, used, self.now
        self._named_at, self._called = -inf, inf
        self._lose_more()

    def _can_go_on(self, cause: failures.Cause) -> bool:
        """Whether enough nodes may remain for another epoch."""
        settings, leaving = self.settings, self.nodes.of(roster.LEAVING)
        local = self.nodes.of(roster.LOCAL).values()
        if cause.kind == "timeout" or any(node.end_signal for node in local):
            return False
        if cause.kind == "signal" or leaving:
            return settings.is_elastic and self._is_enough()
        return self._is_enough() or settings.return_s > 0

    def _let_go(self) -> None:
        """Send an End to launchers that got a signal to end; the others stay members."""
        for conn, node in list(self.nodes.of(roster.LEAVING).items()):
            signal = failures.Cause("signal", node.hello.host, code=-node.end_signal)
            self.net.send(conn, messages.End(128 + node.end_signal, signal, self.restart_count))
            self.nodes.remove(conn)


def _cause(
    reason: failures.Cause, failed: Sequence[failures.Failure], lost_hosts: Sequence[str]
) -> failures.Cause:
    """Return the cause of an epoch's end, after all failures and lost nodes are known.

    Where a node is lost and all failures are those of its victims, the lost node is the cause.
    """
    lost = failures.folded(lost_hosts)
    if reason.kind == "failure" and failed:
        first = failures.first(failed)
        if lost_hosts and first.order in (failures.VICTIM, failures.ABORT):
            return failures.Cause("lost", lost_hosts[0], lost=lost, after_s=reason.after_s)
        reason = first.cause._replace(after_s=reason.after_s)
    return reason._replace(lost=lost)


def _used_after(cause: failures.Cause, used: int, settings: Settings) -> int | None:
    """Return the restarts used if workers start again after this cause; None: they may not."""
    if cause.kind not in failures.RESTARTABLE_KINDS:
        return used
    final = settings.final if cause.kind == "failure" else frozenset()
    return failures.used_after(cause, used, settings.max_restarts, settings.window_s, final)
