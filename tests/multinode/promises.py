"""What must hold in a simulation: for the hub, for what it hears, and for the ends of launchers."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from spawnlaunch.multinode.hub import RETURN_S
from spawnlaunch.multinode.messages import Hello, Stacked, Start
from spawnlaunch.multinode.phases import ENDED, JOINING, RUNNING, STACKS_S, STOPPING
from spawnlaunch.multinode.roster import BUSY
from spawnlaunch.outcome.failures import Cause
from tests.multinode.first import First
from tests.multinode.hosts import Calls, Connection, Host, HubProcess

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spawnlaunch.multinode.hub import Hub
    from tests.multinode.simulation import Simulation


def shadow_of(rules: Any) -> tuple[Any, Calls]:
    """The same rules, to be tried; and what they call."""
    calls = Calls()
    its = [getattr(rules, name, None) for name in ("net", "link", "launcher")]
    shadow = deepcopy(rules, {id(one): calls for one in its if one})
    shadow.wake = calls.wake
    return shadow, calls


def known(rules: Any) -> dict[str, Any]:
    """All that rules know."""
    nodes = {conn: {**vars(node)} for conn, node in getattr(rules, "nodes", {}).items()}
    return {**vars(rules), "nodes": nodes}


class Promises(First):
    """The record of all that began and ended, and what must hold for it."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation)
        self.told: dict[tuple[int, int], dict[int, Start]] = {}  # by host
        self.launches: dict[tuple[int, int], set[int]] = {}
        self.exits: list[tuple[int, int, Cause | None]] = []
        self.calls: set[tuple[int, float]] = set()  # of the roll, by hub and moment
        self.faults = 0
        self.last_port = 0
        self.newcomers: set[int] = set()  # hubs that began with nobody who knew of one before
        self.returned: set[int] = set()  # hosts that said hello again since the last epoch
        self.missing: dict[int, float] = {}  # hosts that will not come, since when the hub knows it

    # The hub

    def begun(self, hub: HubProcess, starts: list[tuple[Connection | None, Start]]) -> None:
        """The hub begins an epoch: all are told one world."""
        one = starts[0][1]
        world = (hub.number, one.epoch)
        self.sim.say(f"hub: world {world} of {one.nnodes} nodes, {one.world_size} ranks")
        self.check(world not in self.told, f"agree: {world} begins twice")
        self.check(
            all(one.epoch > e for n, e in self.told if n == hub.number), "agree: epochs grow"
        )
        ranks: list[int] = []
        of_role: dict[tuple[str, int], list[int]] = {}
        for connection, start in starts:
            if connection is None:
                continue
            same = start._replace(
                node_rank=one.node_rank, first_rank=one.first_rank,
                role_rank=one.role_rank, role_size=one.role_size,
            )  # fmt: skip
            self.check(same == one, f"agree: {start} and {one}")
            nproc, role = connection.host.nproc, connection.host.role
            ranks += range(start.first_rank, start.first_rank + nproc)
            within = range(start.role_rank, start.role_rank + nproc)
            of_role.setdefault((role, start.role_size), []).extend(within)
        if all(connection for connection, _ in starts):
            self.check(sorted(ranks) == list(range(one.world_size)), f"agree: ranks {ranks}")
            for (role, size), within in of_role.items():
                self.check(within == list(range(size)), f"agree: of role {role} {within}")
        node_ranks = sorted(start.node_rank for _, start in starts)
        self.check(node_ranks == list(range(one.nnodes)), f"agree: node ranks {node_ranks}")
        self.check(one.nnodes >= self.sim.settings.least, "agree: enough nodes")
        self.check(one.nnodes <= self.sim.settings.most, "agree: not too many nodes")
        self.check(one.used <= self.sim.settings.max_restarts, f"budget: {one.used}")
        for before in self.told.get((hub.number, one.epoch - 1), {}).values():
            self.check(
                one.restart_count == before.restart_count + 1, f"count: {one.restart_count} starts"
            )
        self.check(one.master_port != self.last_port, "agree: a port of its own")
        self.last_port = one.master_port
        self.keeps_ranks(world, starts)
        self.missing.clear()
        self.continues(hub, starts)
        self.told[world] = {c.host.number: start for c, start in starts if c}

    def keeps_ranks(
        self, world: tuple[int, int], starts: list[tuple[Connection | None, Start]]
    ) -> None:
        """Who has worked in the last epoch, and whose node rank there still is, has it again."""
        last = self.told.get((world[0], world[1] - 1), {})
        for connection, start in starts:
            host = connection.host if connection else None
            old = last.get(host.number) if host else None
            if host and old and old.node_rank < start.nnodes and host.number not in self.returned:
                kept = old.node_rank == start.node_rank
                self.check(kept, f"stay: {host.name} was {old.node_rank}, is {start.node_rank}")
        self.returned.clear()

    def continues(self, hub: HubProcess, starts: list[tuple[Connection | None, Start]]) -> None:
        """A hub that was started again goes on with the epochs and the budget of the one before."""
        if hub.number == 1 or any(number == hub.number for number, _ in self.told):
            return
        members = [c.host.member for c, _ in starts if c]
        known = [one.hello for one in members if one and one.hello.epoch]
        if not known:
            self.newcomers.add(hub.number)
            self.sim.seen["a hub of newcomers"] += 1
            return
        self.sim.seen["a hub that goes on"] += 1
        start = starts[0][1]
        self.check(start.epoch > max(hello.epoch for hello in known), "agree: epochs go on")
        self.check(start.used > max(hello.used for hello in known), "budget: it goes on")
        self.check(
            start.restart_count > max(hello.restart_count for hello in known), "count: it goes on"
        )

    def after_hub(self, before: Hub, hub: Hub) -> None:
        self.check(hub.epoch >= before.epoch, "agree: epochs grow")
        if before.phase == STOPPING and hub.phase == ENDED and hub.cause:
            self.check(
                all(n.state == "idle" for n in hub.nodes.values()), "alone: all have stopped"
            )
            self.reported(hub.epoch, hub.cause)
        self.while_waiting(before, hub)
        for cause in hub.restart_causes[len(before.restart_causes) :]:
            self.again(hub, cause)
        if hub.phase == RUNNING:
            self.while_running(hub)
        if hub.phase == JOINING:
            self.while_joining(hub)
        if (not before.epoch and hub.epoch) or (before.phase != ENDED and hub.phase == ENDED):
            self.sim.faults.met()
        if before.phase != ENDED and hub.phase == ENDED:
            self.sim.seen[f"end {hub.cause.kind if hub.cause else 'well'}"] += 1

    def comes(self, host: Host, hello: Hello) -> None:
        """The hub is about to hear a hello."""
        hub = self.sim.hub
        if not hello.status:
            self.missing.pop(host.number, None)
        elif (
            hub and hub.state.phase == JOINING and not (hello.is_restarted or self.may_return(hub))
        ):
            self.missing[host.number] = self.sim.now

    def goes(self, host: Host, number: int, certain: bool) -> None:
        """The hub is about to hear that a connection has ended."""
        hub = self.sim.hub
        node = hub.state.nodes.get(number) if hub else None
        if hub is None or node is None or not certain or self.may_return(hub):
            return
        if hub.state.phase == JOINING and not (node.hello.is_restarted or node.end_signal):
            self.missing[host.number] = self.sim.now + RETURN_S

    def may_return(self, hub: HubProcess) -> bool:
        settings = self.sim.settings
        return settings.return_s > 0 if hub.state.floor else settings.is_restarted_by_manager

    def while_joining(self, hub: Hub) -> None:
        """Nobody waits for launchers that will not come, where there are too few others."""
        if self.sim.faults.has_hub_jumped or 0 in self.sim.faults.frozen:
            return
        gone = sum(since + 0.2 < self.sim.now for since in self.missing.values())
        others = max(self.sim.settings.most_launchers - gone, len(hub.nodes))
        self.check(not gone or others >= hub.settings.least, f"no wait: for {self.missing}")

    def while_waiting(self, before: Hub, hub: Hub) -> None:
        """Lost launchers are waited for as long as was said, and only where they may come back."""
        settings, nodes = self.sim.settings, hub.nodes.values()
        ready = sum(node.state == "idle" and not node.end_signal for node in nodes)
        is_enough = ready >= settings.least and 2 * ready >= hub.size
        waited = hub.now - before.since
        limit = settings.return_s if hub.floor and settings.return_s else settings.join_s
        if before.phase == STOPPING and hub.phase == JOINING:
            self.check(is_enough or settings.return_s, "waits: nobody comes back")
        if before.phase == hub.phase == JOINING and before.floor == hub.floor:
            self.check(is_enough or waited <= limit, f"waits: {waited:.1f} s of {limit:.1f}")
        if hub.phase != ENDED or before.phase == ENDED or hub.cause is None:
            return
        if hub.cause.kind == "absent" and before.phase == JOINING:
            self.sim.seen["nobody came back"] += hub.floor > 0
            self.check(not is_enough and waited >= limit, f"goes on: ended after {waited:.1f} s")
        is_told = any(node.end_signal for node in nodes)
        if hub.cause.kind == "lost" and before.phase == STOPPING and settings.return_s:
            is_used = hub.used >= settings.max_restarts
            self.check(is_told or is_used, "goes on: it could wait for the lost")

    def while_running(self, hub: Hub) -> None:
        """What the hub should not let go on."""
        settings, nodes = self.sim.settings, hub.nodes.values()
        limit = settings.timeout_s and hub.time > (hub.began or hub.time) + settings.timeout_s
        self.check(not limit, "timeout: it is over")
        newcomers = [n for n in nodes if n.state == "idle" and not n.end_signal]
        is_ending = any(n.state == "done" for n in nodes)
        is_wanted = len(newcomers) > 0 and hub.size < settings.most and not is_ending
        self.check(not is_wanted, f"join: nobody takes {newcomers}")
        if hub.stacks_at is not None:
            silent = [n.is_silent for n in nodes if n.state == "busy"]
            self.check(all(silent), f"hang: asked, though some talk {silent}")

    def compared(self, hub: Hub, told: Sequence[Stacked]) -> None:
        """The hub has what the nodes have told of a hang."""
        self.sim.seen["compared"] += 1
        assert hub.stacks_at is not None
        call = (self.sim.hubs, hub.stacks_at)
        self.check(call not in self.calls, "roll: it is called twice")
        self.calls.add(call)
        self.check(all(one.epoch == hub.epoch for one in told), "roll: of another epoch")
        is_late = hub.now >= hub.stacks_at + STACKS_S
        missing = hub.nodes.of(BUSY).keys() - hub.stack_reports.keys()
        self.check(is_late or not missing, f"roll: {missing} have not told")
        names = [where.singular for one in told for where in one.where]
        self.check(len({*names}) == len(names), f"roll: one is called twice {names}")

    def again(self, hub: Hub, cause: Cause) -> None:
        """There will be another epoch."""
        self.sim.seen[f"again {cause.kind}"] += 1
        epoch = hub.epoch - (hub.phase == RUNNING)
        self.reported(epoch, cause)
        is_final = cause.kind == "failure" and cause.code in self.sim.settings.final
        self.check(not is_final, "final: this status is not tried again")
        if cause.kind in ("failure", "hang", "lost"):
            self.faults += 1
            most = self.sim.settings.max_restarts
            if not self.sim.settings.window_s and self.sim.hubs == 1:
                self.check(self.faults <= most, f"budget: {self.faults} of {most}")

    def before_hub_hears(self, number: int, message: Any) -> None:
        """What is said of an earlier epoch changes nothing."""
        hub = self.sim.hub
        epoch = getattr(message, "epoch", None)
        if (
            hub is None
            or epoch is None
            or epoch >= hub.state.epoch
            or number not in hub.state.nodes
        ):
            return
        if self.sim.hosts[0].frozen_until > self.sim.now:
            return
        shadow, calls = shadow_of(hub.state)
        shadow.tick()
        node = shadow.nodes.get(number)
        if node:
            shadow.nodes.note_message(number, shadow.now)
        self.changes_nothing(shadow, calls, message, number, message)

    def before_member_hears(self, host: Host, message: Any) -> None:
        """The same for a member."""
        epoch = getattr(message, "epoch", None)
        member = host.member
        if member is None or epoch is None or epoch >= member.hello.epoch:
            return
        shadow, calls = shadow_of(member)
        shadow.tick()
        shadow.last_message_at = shadow.now
        self.changes_nothing(shadow, calls, message, message)

    def changes_nothing(self, shadow: Any, calls: Calls, message: Any, *args: Any) -> None:
        before = known(shadow)
        calls.taken()
        shadow.received(*args)
        made = [call for call in calls.taken() if call[0] != "wake"]
        is_same = known(shadow) == before and not made
        self.check(is_same, f"stale: {message} changed {before} to {known(shadow)}, {made}")

    # Ends

    def exited(self, host: Host, status: int, cause: Cause | None) -> None:
        self.sim.say(f"{host.name}: exits with {status}, {cause}")
        self.check(host.workers is None, f"nothing left: {host.name} ends before its workers")
        host.exit = (status, cause)
        if cause and cause.kind == "absent" and cause.words.startswith("the hub"):
            self.sought(host)
            reachable = self.sim.ended - max(host.came, self.sim.began)  # a try is up to 6 s long
            late = self.sim.now - self.sim.began < 6.0  # a hub that comes at the last moment
            last = self.sim.now if self.sim.hub else self.sim.ended
            cuts = (*host.cuts, *self.sim.hosts[0].cuts)
            was_cut = any(until > last - 6.0 for _, until in cuts)
            missed = was_cut or (late if self.sim.hub else reachable < 6.0)
            self.check(
                missed or host.number in self.sim.faults.hurt | self.sim.faults.frozen,
                "an end: it found no hub",
            )
            self.sim.faults.hurt.add(host.number)
        self.exits.append((host.number, status, cause))
        self.sim.seen[f"exit {cause.kind if cause else 'well'}"] += 1

    def sought(self, host: Host) -> None:
        """It has looked for the hub as long as it should, by its own clock."""
        member, settings = host.member, self.sim.settings
        assert member
        limit = settings.return_s if member.hello.epoch else settings.join_s
        late = member.now - member.since - limit
        is_soon = late < 0 and member.hello.epoch > 0  # before, it ends where nobody listens
        self.check(
            late < 12 and not is_soon, f"waits: {host.name} sought the hub {late:.1f} s longer"
        )

    def at_the_end(self) -> None:
        for host in self.sim.hosts:
            if host.is_stuck:
                continue
            self.check(host.member is None, f"an end: {host.name} has none, {self.sim.state()}")
        sound = {n: (s, c) for n, s, c in self.exits if n not in self.sim.faults.hurt}
        self.check(len(set(sound.values())) <= 1, f"one end: {sound}")
