"""The hub, which decides for the launchers of all nodes: its events.

Its base `phases` has its state and its decisions.
"""

from __future__ import annotations

from collections.abc import Callable

from spawnlaunch.base import errors
from spawnlaunch.multinode import messages, phases, roster, words
from spawnlaunch.multinode.rules import event
from spawnlaunch.outcome import failures

CERTAIN_S = 0.5  # the kernel closes a guard's connection before it kills its workers
RETURN_S = 3.0  # in which a launcher that has closed its connection connects again, if it lives


class Hub(phases.Phases):
    """The hub, in one of the launchers."""

    def _follow(self, rule: Callable[[], None]) -> None:
        rule()
        for conn in self.nodes.dead.due(self.now):  # even if the kernel there still answers
            host = self.nodes[conn].hello.host
            self.net.print_line(f"{host} has not answered for a minute, so it counts as lost")
            self.net.dismiss(conn)
            self._lose(conn, is_certain=False)
        self._conclude()

    @event
    def end_unmet(self, cause: failures.Cause) -> None:
        """End the launch as this hub's own launcher cannot take part, and tell all launchers."""
        self.phase, self.cause, self.status = phases.ENDED, cause, cause.status()
        self.unconnected_count, self._until = (
            self.settings.most_launchers - 1,
            self.now + phases.NEAR_S,
        )

    # Launchers connect and disconnect

    @event
    def connected(
        self, conn: int, hello: messages.Hello, addr: str, is_local: bool = False
    ) -> None:
        """Handle a launcher's Hello on a new connection: let the launcher in, or refuse it.

        `addr` is the address that the launcher connected from.
        """
        addr = hello.addr or addr
        groups = (("launcher", hello.launcher_id), ("host", hello.host))
        alike = {other: node for each in groups for other, node in self.nodes.of(each).items()}
        for other, node in alike.items():
            if _is_later_self(hello, addr, node):  # the old connection has not ended yet
                self.net.dismiss(other)
                self._lose(other, is_certain=True)
        # After the end every launcher is told of it, even one that would be refused.
        cause = None if self.phase == phases.ENDED else self._unfit(hello, addr)
        if cause:
            self.net.send(conn, messages.Refused(cause.words))
            self.net.dismiss(conn)
            self._count_out(hello, cause)
        else:
            self._let_in(conn, roster.Peer(hello, addr, is_local, self.now, self._arrivals))

    def _unfit(self, hello: messages.Hello, addr: str) -> failures.Cause | None:
        """Return why a launcher cannot be a member, by its own message or its flags; else None."""
        if hello.status:
            return failures.Cause("unable", hello.host, code=hello.status, words=hello.words)
        settings = self.settings
        same = (
            [*self.nodes.of(("given", hello.given_node_rank)).values()]
            if hello.given_node_rank >= 0
            else []
        )
        if self.phase in (phases.RUNNING, phases.STOPPING) and settings.return_s > 0:
            # One in the same place may be this launcher before a restart: workers may die slowly.
            place = (hello.host, addr)
            same = [other for other in same if (other.hello.host, other.addr) != place]
        why = roster.refusal(hello, same, settings.most_launchers, dict(settings.flags))
        if why is None:
            return None
        return failures.Cause("refused", hello.host, code=errors.WRONG_USE, words=why)

    def _count_out(self, hello: messages.Hello, cause: failures.Cause) -> None:
        """Stop waiting for a launcher that cannot be a member, unless it is started again.

        A launcher with a node rank that another one has may have been started twice: its refusal
        ends nothing.
        """
        is_awaited = roster.is_awaited(
            hello, self.nodes, self._expected, self.settings.most_launchers
        )
        is_final = is_awaited and not (hello.is_restarted or self._may_return())
        if is_final and self.phase != phases.RUNNING:
            self._expect_no_more(hello, cause, self.now)
            if self._is_impossible():
                return  # the line at the launch's end says so
        then = "nobody waits for it, as another one has its place"
        if is_awaited:
            then = "waiting for it, as it is started again"
        if is_final:
            then = "the others go on without it"
        line = f"{cause.in_words}; {then}" if cause.kind == "unable" else f"refused: {cause.words}"
        self.net.print_once(line)

    def _expect_no_more(
        self, hello: messages.Hello, cause: failures.Cause, counts_at: float
    ) -> None:
        self._expect_again(hello)
        self.will_not_connect[hello.launcher_id] = phases.WillNotConnect(hello, cause)
        self._not_connecting_by_node_rank[hello.given_node_rank] = hello.launcher_id
        if counts_at > self.now:
            self._may_connect_again.set(hello.launcher_id, counts_at)

    def _expect_again(self, hello: messages.Hello) -> None:
        """Remove this launcher, and one with the same node rank, from those that will not come."""
        same_rank = (
            self._not_connecting_by_node_rank.get(hello.given_node_rank, "")
            if hello.given_node_rank >= 0
            else ""
        )
        for launcher_id in (hello.launcher_id, same_rank):
            self.will_not_connect.pop(launcher_id, None)
            self._may_connect_again.drop(launcher_id)

    def _let_in(self, conn: int, node: roster.Peer) -> None:
        hello, settings = node.hello, self.settings
        self._arrivals += 1
        for fence in self._fences_of.get(hello.host, ()):
            # The fenced launcher's workers have ended if this is the same launcher, or the same
            # machine after a reboot. Host names alone prove nothing: several may be "localhost".
            is_there = (hello.host, node.addr) == (fence.host, fence.addr)
            if hello.launcher_id == fence.launcher_id or (is_there and hello.boot != fence.boot):
                self.fences.drop(fence)
        self._expect_again(hello)
        self._learn(conn, node)
        differs = roster.differences(hello, dict(settings.flags))
        if differs:
            self.net.print_once(words.differing(hello.host, differs))
        welcome_fields = settings.for_members()
        self.net.send(conn, messages.Welcome(differs=differs, **welcome_fields))
        if self._begun and self.phase != phases.ENDED:
            self.net.send(conn, self._begun)
        if self.phase == phases.ENDED:
            self.net.send(conn, messages.End(self.status, self.cause, self.restart_count))
            self.unconnected_count -= 1
            if self.unconnected_count >= 0:
                self.net.linger()
        if hello.end_signal:
            self._signalled(conn, messages.Signalled(hello.end_signal))

    def _learn(self, conn: int, node: roster.Peer) -> None:
        """Take over the epoch and restart counters from a member of an earlier hub.

        A member that lost the earlier hub may not know all epochs that the hub has begun.
        """
        hello = node.hello
        if self.epoch == 0 and hello.epoch > self.floor:
            for other in list(self.nodes.of(roster.RANKED)):
                self.nodes.change(other, node_rank=-1)
            self.size, self.since = min(hello.nodes, self.settings.most), self.now
        if self.epoch == 0 and hello.epoch and hello.epoch >= self.floor:
            node.node_rank = hello.last_node_rank
        self.nodes.add(conn, node)
        self.floor = max(self.floor, hello.epoch)
        self.restart_count, self.used = (
            max(self.restart_count, hello.restart_count),
            max(self.used, hello.used),
        )

    @event
    def disconnected(self, conn: int, is_certain: bool) -> None:
        """Handle the end of a connection.

        `is_certain`: the other end closed it, so that no worker runs there.
        """
        if conn in self.nodes:
            self._lose(conn, is_certain)

    def _lose(self, conn: int, is_certain: bool) -> None:
        """Remove a lost member; if its workers ran, fence its host and stop the epoch."""
        node = self.nodes.remove(conn)
        self._lost_peers.append(node)
        hello, cause = node.hello, failures.Cause("lost", node.hello.host)
        if self.phase == phases.JOINING:
            if is_certain and not (hello.is_restarted or self._may_return() or node.end_signal):
                self._expect_no_more(hello, cause, self.now + RETURN_S)
            if node.node_rank >= 0:  # the hub waits for this one too
                self._lose_more()
        if node.state != roster.BUSY or self.phase == phases.ENDED:
            return
        wait_s = CERTAIN_S if is_certain else phases.NOTICE_S + self.settings.longest_grace_s
        fence = phases.Fence(hello.launcher_id, hello.host, hello.boot, node.addr)
        self.fences.set(fence, self.now + wait_s)
        self._fences_of.setdefault(hello.host, []).append(fence)
        self.lost_hosts.append(hello.host)
        if self.phase == phases.RUNNING:
            self._stop(cause)

    # Messages of members

    @event
    def received(self, conn: int, message: messages.ToHub) -> None:
        """Handle a member's message."""
        node = self.nodes.get(conn)
        if node is None:
            return
        if self.is_mute(node):  # its connection may still be cut in one direction
            self.nodes.unsure.set(conn, self.now + self.settings.lost_after_s)
        self.nodes.note_message(conn, self.now)
        match message:
            case messages.Beat():
                self.net.send(conn, message)
            case messages.Signalled():
                self._signalled(conn, message)
            case messages.Hello():
                pass
            case _:
                # Messages about workers count only while this epoch's workers run or stop.
                if message.epoch == self.epoch and node.state != roster.IDLE:
                    self._of_workers(conn, message)

    def _signalled(self, conn: int, signalled: messages.Signalled) -> None:
        """Handle a launcher's signal to end; after a second one no node waits for the grace."""
        node, number = self.nodes[conn], signalled.number
        self.nodes.change(conn, end_signal=node.end_signal or number)
        cause = failures.Cause("signal", node.hello.host, code=-number)
        # A signal to a spare stops nothing: only the spare leaves.
        if self.phase == phases.RUNNING and (node.state != roster.IDLE or node.is_local):
            self._stop(cause)
        if signalled.is_second and self.phase == phases.STOPPING and not self._is_hurried:
            self._is_hurried = True
            self._send_to_busy(messages.Stop(self.epoch, self.cause or cause, 0.0))

    def _of_workers(self, conn: int, message: messages.ToHub) -> None:
        nodes, node = self.nodes, self.nodes[conn]
        match message:
            case messages.Idle():
                hello = node.hello._replace(port=message.port)
                nodes.change(conn, state=roster.IDLE, hello=hello)
                self.outcomes += message.outcomes
                if self.phase == phases.RUNNING:  # the workers ended without a Stop
                    self._stop(failures.Cause("lost", hello.host))
            case messages.Done():
                nodes.change(conn, state=roster.DONE)
            case messages.Failed():
                cause = message.cause._replace(kind="failure", host=node.hello.host)
                failure = failures.Failure(cause, self.now - message.age_s, message.early_s)
                self.failures = failures.first_candidates(self.failures, failure)
                if self.phase == phases.RUNNING:
                    self._stop(cause)
            case messages.Silent():
                if not message.is_silent:
                    self.stacks_at = None
                nodes.change(conn, is_silent=message.is_silent)
            case messages.Stacked():
                nodes.change(conn, has_shown_stacks=True)
                self.stack_reports[conn] = message


def _is_later_self(hello: messages.Hello, addr: str, node: roster.Peer) -> bool:
    """Whether a Hello comes from a known launcher, or from its successor after a reboot."""
    old = node.hello
    if old.launcher_id == hello.launcher_id:
        return True
    place = (old.host, old.given_node_rank, node.addr)
    return old.boot != hello.boot and place == (hello.host, hello.given_node_rank, addr)
