"""The hub: decides for the launchers of all nodes. What happens to it, and what it learns by that.

`phases` has what it knows, and draws the conclusions.
"""

from __future__ import annotations

from spawnlaunch import errors, failures
from spawnlaunch.gang import messages, phases, roster, words
from spawnlaunch.gang.rules import event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


CERTAIN_S = 0.5  # the kernel closes a guard's connection before it kills its workers
RETURN_S = 3.0  # for a launcher that has closed its connection to come again, if it lives


class Hub(phases.Phases):
    """One per gang, on the endpoint's node."""

    def _follow(self, rule: Callable[[], None]) -> None:
        rule()
        for conn, node in list(self.nodes.items()):
            # though the kernel there still answers
            if self.now - node.heard >= self.settings.dead_s:
                self.net.tell(
                    f"{node.hello.host} has not answered for a minute, so it counts as lost"
                )
                self.net.dismiss(conn)
                self._lose(conn, is_certain=False)
        self._conclude()

    @event
    def end_unmet(self, cause: failures.Cause) -> None:
        """The launcher of this hub cannot take part: tell all who come."""
        self.phase, self.cause, self.status = phases.ENDED, cause, cause.status()
        self.late, self._until = self.settings.total - 1, self.now + phases.NEAR_S

    # Launchers come and go

    @event
    def came(self, conn: int, hello: messages.Hello, addr: str, is_local: bool = False) -> None:
        """Somebody has said hello, on a new connection, from this address."""
        addr = hello.addr or addr
        for other, node in list(self.nodes.items()):
            if _is_later_self(hello, addr, node):  # the end of its connection is still to come
                self.net.dismiss(other)
                self._lose(other, is_certain=True)
        # who comes after the end hears of it, whatever it is
        cause = None if self.phase == phases.ENDED else self._unfit(hello, addr)
        if cause:
            self.net.say(conn, messages.Refused(cause.words))
            self.net.dismiss(conn)
            self._count_out(hello, cause)
        else:
            self._let_in(conn, roster.Peer(hello, addr, is_local, self.now, self._arrivals))

    def _unfit(self, hello: messages.Hello, addr: str) -> failures.Cause | None:
        """Why a launcher is none of these, as it says itself, or as its flags do."""
        if hello.status:
            return failures.Cause("unable", hello.host, code=hello.status, words=hello.words)
        settings = self.settings
        others = [o for o in self.nodes.values() if not self._is_replaced(hello, addr, o)]
        why = roster.refusal(hello, others, settings.total, dict(settings.told))
        if why is None:
            return None
        return failures.Cause("refused", hello.host, code=errors.WRONG_USE, words=why)

    def _is_replaced(self, hello: messages.Hello, addr: str, node: roster.Peer) -> bool:
        """Whether this may be a launcher whose end is still to be heard, as workers die slowly."""
        is_there = (node.hello.host, node.addr) == (hello.host, addr)
        have_workers = self.phase in (phases.RUNNING, phases.STOPPING)
        return is_there and have_workers and self.settings.return_s > 0

    def _count_out(self, hello: messages.Hello, cause: failures.Cause) -> None:
        """Wait no longer for a launcher that is waited for, unless something starts it again.

        One whose place is taken may have been started twice; it ends nothing.
        """
        settings = self.settings
        is_awaited = roster.is_awaited(hello, self.nodes, settings.expected, settings.total)
        is_final = is_awaited and not (hello.again or self._may_return())
        if is_final and self.phase != phases.RUNNING:
            self._miss(hello, cause, self.now)
            if self._is_impossible():
                return  # the end tells it
        then = "nobody waits for it, as another one has its place"
        if is_awaited:
            then = "waiting for it, as it is started again"
        if is_final:
            then = "the others go on without it"
        said = f"{cause.in_words}; {then}" if cause.kind == "unable" else f"refused: {cause.words}"
        self.net.tell_once(said)

    def _miss(self, hello: messages.Hello, cause: failures.Cause, since: float) -> None:
        self._not_missing(hello)
        self.missing.append(phases.Missing(hello, cause, since))

    def _not_missing(self, hello: messages.Hello) -> None:
        self.missing = [one for one in self.missing if not roster.is_same(one.hello, hello)]

    def _let_in(self, conn: int, node: roster.Peer) -> None:
        hello, settings = node.hello, self.settings
        self._arrivals += 1
        self.fences = [fence for fence in self.fences if not _ends(hello, fence)]
        self._not_missing(hello)
        self._learn(conn, node)
        differs = roster.differences(hello, dict(settings.told))
        if differs:
            self.net.tell_once(words.differing(hello.host, differs))
        rules = settings.for_members()
        self.net.say(conn, messages.Welcome(self._absent(), differs=differs, **rules))
        if self.phase in (phases.RUNNING, phases.STOPPING):
            self.net.say(conn, self._begun)
        if self.phase == phases.ENDED:
            self.net.say(conn, messages.End(self.status, self.cause, self.total))
            self.late -= 1
            if self.late >= 0:
                self.net.linger()
        if hello.leaving:
            self._signalled(conn, messages.Signalled(hello.leaving))

    def _learn(self, conn: int, node: roster.Peer) -> None:
        """What a newcomer knows of epochs that a hub before this one has begun.

        One that has lost another hub may not know all that this has begun.
        """
        hello = node.hello
        if self.epoch == 0 and hello.epoch > self.floor:
            for other in self.nodes.values():
                other.rank = -1
            self.size, self.since = min(hello.nodes, self.settings.most), self.now
        if self.epoch == 0 and hello.epoch and hello.epoch >= self.floor:
            node.rank = hello.last
        self.nodes[conn] = node
        self.floor = max(self.floor, hello.epoch)
        self.total, self.used = max(self.total, hello.total), max(self.used, hello.used)

    @event
    def gone(self, conn: int, is_certain: bool) -> None:
        """A connection has ended. Certain: the other end closed it, so that nothing runs there."""
        if conn in self.nodes:
            self._lose(conn, is_certain)

    def _lose(self, conn: int, is_certain: bool) -> None:
        """A member is lost, and with it its workers; but not those that had ended well."""
        node = self.nodes.pop(conn)
        self._holes.append(node)
        hello, cause = node.hello, failures.Cause("lost", node.hello.host)
        if self.phase == phases.JOINING:
            if is_certain and not (hello.again or self._may_return() or node.leaving):
                self._miss(hello, cause, self.now + RETURN_S)
            if node.rank >= 0:  # it is waited for as well
                self._told = 0.0
        if node.state != roster.BUSY or self.phase == phases.ENDED:
            return
        wait_s = CERTAIN_S if is_certain else phases.NOTICE_S + self.settings.longest_grace_s
        self.fences.append(phases.Fence(hello.who, hello.host, hello.boot, self.now + wait_s))
        self.lost = (*self.lost, hello.host)
        if self.phase == phases.RUNNING:
            self._stop(cause)

    # What members say

    @event
    def heard(self, conn: int, message: messages.ToHub) -> None:
        """A member has said something."""
        node = self.nodes.get(conn)
        if node is None:
            return
        if self.is_mute(node):  # both ways of its connection have to be whole again
            node.unsure = self.now + self.settings.lost_after_s
        node.heard = self.now
        match message:
            case messages.Beat():
                self.net.say(conn, message)
            case messages.Signalled():
                self._signalled(conn, message)
            case messages.Hello():
                pass
            case _:
                # What is said of workers counts for those that run, or stop.
                if message.epoch == self.epoch and node.state != roster.IDLE:
                    self._of_workers(node, message)

    def _signalled(self, conn: int, signalled: messages.Signalled) -> None:
        """A launcher was told to end; a second time it does not want to wait, nor do the others."""
        node, number = self.nodes[conn], signalled.number
        node.leaving = node.leaving or number
        cause = failures.Cause("signal", node.hello.host, code=-number)
        # Else a spare leaves.
        if self.phase == phases.RUNNING and (node.state != roster.IDLE or node.local):
            self._stop(cause)
        if signalled.again and self.phase == phases.STOPPING:
            self._say_busy(messages.Stop(self.epoch, self.cause or cause, 0.0))

    def _of_workers(self, node: roster.Peer, message: messages.ToHub) -> None:
        match message:
            case messages.Idle():
                self._idle(node, message)
            case messages.Done():
                node.state = roster.DONE
            case messages.Failed():
                self._failed(node, message)
            case messages.Silent():
                node.silent = True
            case messages.Talking():
                self.asked, node.silent = None, False
                for other in self.nodes.values():
                    other.stacked = False
            case messages.Stacked():
                node.stacked = True

    def _idle(self, node: roster.Peer, idle: messages.Idle) -> None:
        node.state, node.hello = roster.IDLE, node.hello._replace(port=idle.port)
        self.outcomes += idle.outcomes
        if self.phase == phases.RUNNING:  # nobody has told it to
            self._stop(failures.Cause("lost", node.hello.host))

    def _failed(self, node: roster.Peer, failed: messages.Failed) -> None:
        cause = failed.cause._replace(kind="failure", host=node.hello.host)
        failure = failures.Failure(cause, self.now - failed.age_s, failed.early_s)
        self.failures = failures.kept(self.failures, failure)
        if self.phase == phases.RUNNING:
            self._stop(failure.cause)


def _is_later_self(hello: messages.Hello, addr: str, node: roster.Peer) -> bool:
    """Whether this is a launcher that we know, or one of the same machine, started again."""
    old = node.hello
    if old.who == hello.who:
        return True
    its = (old.host, old.rank, node.addr)
    return old.boot != hello.boot and its == (hello.host, hello.rank, addr)


def _ends(hello: messages.Hello, fence: phases.Fence) -> bool:
    """A hello says that nothing of before runs: of this launcher, or on this machine."""
    return hello.who == fence.who or (hello.host == fence.host and hello.boot != fence.boot)
