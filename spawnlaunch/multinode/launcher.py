"""The workers of one node in a launch on several nodes: the guard's part.

The launchers meet before any worker starts. The hub, in the guard of one of them, orders when to
start, as which ranks, and when to stop; `node` and `hub` have the rules. This file carries them
out: it starts and ends this node's workers, and tells the rules what becomes of them.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from functools import partial

from spawnlaunch import output
from spawnlaunch.base import errors, machine, say, signals
from spawnlaunch.multinode import link, messages, words
from spawnlaunch.multinode.settings import Settings, settings_of
from spawnlaunch.outcome import endings, failures
from spawnlaunch.run import decisions, observer
from spawnlaunch.run.supervisor import Supervisor
from spawnlaunch.workers import launches, routes, starting
from spawnlaunch.world import host, refusals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from spawnlaunch.multinode import server

TURN_S = 5.0
FEW_STRANGERS = 8  # that the hub has room for, though open files are few


class NodeWorkers(observer.Leader):
    """This node's workers; `run` sees the launch to its end."""

    def __init__(self, supervisor: Supervisor) -> None:
        launch = supervisor.launch
        self._supervisor, self._launch = supervisor, launch
        gathering = launch.resolution.gathering
        assert gathering is not None
        self._name, self._gathering = gathering.name, gathering
        self._order: messages.Order | None = None  # of the epoch that is to start
        self._link: link.Link | None = None
        self._is_over = self._is_alone = False  # exit was called; the launcher above us is gone
        self._status, self._world_size = 0, 0
        self._lines: list[str] = []  # of the workers of the epoch before
        self._cause: failures.Cause | None = None
        self._result = failures.LaunchResult(0, None)
        self._say = supervisor.output.say
        self._server: server.Server | None = None
        # Prints where the ranks of all nodes are: of these Reports, and the world size.
        self.compare: Callable[[Sequence[messages.Report], int], None] = lambda *_: None
        supervisor.leader = self

    def run(self) -> failures.LaunchResult:
        """Take part until the end; the result has the exit status of all launchers.

        Raises UsageError where the launchers cannot meet here.
        """
        self._meet()
        self.has_met = True
        loop, cause = self._supervisor.loop, self._supervisor.rules.cause
        if cause is not None:  # told to end before there was a hub
            for _ in range(2):  # at the second it ends at once, and looks for no hub to tell
                self._node.signalled(-cause.code or signals.signal.SIGTERM, machine.running_s())
        self._look()
        while not self._is_over and not self._is_alone:
            order, self._order = self._order, None
            if order is None:
                loop.turn(TURN_S)
            else:
                self._run_workers(order)
        hub = self._server
        # In another phase it has refused this launcher.
        while hub and hub.hub.phase == "ended" and not (hub.is_over or self._is_alone):
            loop.turn(TURN_S)
        again = tuple(hub.hub.again) if hub else ()
        return self._result._replace(status=self._status, cause=self._cause, restarted=again)

    def _meet(self) -> None:
        """Start the hub, if this launcher is to have it, and the rules of this node."""
        launch, gathering = self._launch, self._gathering
        request, environ, run_id = launch.request, launch.environ, launch.resolution.world.run_id
        self._port: host.HeldPort | None = host.hold_free_port()
        who = machine.urandom(8).hex()
        settings = settings_of(
            request, gathering, launch.grace_s, launch.failure_grace_s, machine.name_now()
        )
        endpoint = link.endpoint_of(gathering, run_id, request, environ, settings.lost_after_s)
        self._server = self._served(endpoint, settings, who)
        if self._server:
            here, port = self._server.own_address, self._server.port
            endpoint = endpoint._replace(host=here, port=port, ports=1)
        report = messages.Report(
            self._name,
            who,
            len(launch.plan.bindings),
            rank=gathering.node_rank,
            port=self._port.port,
            addr=request.local_addr or "",
            role=request.role,
            flags=settings.flags,
            is_restarted=gathering.is_restarted,
        )
        self._link = link.Link(
            self._supervisor.loop, endpoint, report, settings.join_s, self,
            settings.beat_s, settings.dead_s,
        )  # fmt: skip
        self._node = self._link.node

    def _served(
        self, endpoint: link.Endpoint, settings: Settings, who: str
    ) -> server.Server | None:
        gathering = self._gathering
        if gathering.is_hub is False:
            return None
        if gathering.is_hub is None:  # others here listen at the next port where this is taken
            endpoint = endpoint._replace(ports=1)
        from spawnlaunch.multinode import server  # most launchers have no hub

        loop = self._supervisor.loop
        room = self._room(settings.total, server.most_connections(settings))
        try:
            found = endpoint.look_up(loop, lambda: self._supervisor.rules.cause is not None)
            if self._supervisor.rules.cause:  # told to end meanwhile
                return None
            return server.Server(
                loop, endpoint, settings, who, self._say_line, room, found,
                partial(line_again, self._launch),
                lambda reports: self.compare(reports, self._world_size),
            )  # fmt: skip
        except OSError as error:
            if gathering.is_hub is None and error.errno == errno.EADDRINUSE:
                return None  # another launcher of this machine has it
            why = "end what uses the port, or " if error.errno == errno.EADDRINUSE else ""
            rank = self._launch.resolution.sources.get("node_rank")
            if rank and rank.value == 0:
                other = "if node rank 0 is another launcher's, type this one's --node-rank; else "
                why = f"{other}{why}"
            if error.errno == errno.EADDRNOTAVAIL:
                why = f"this machine is to have the hub, and has no such address; {why}"
            raise errors.UsageError(
                f"the launchers cannot meet at {endpoint.host}:{endpoint.port}: {error.strerror}; "
                f"{why}type --rdzv-endpoint HOST:PORT, the same everywhere"
            ) from None

    def _room(self, nodes: int, most_used: int) -> int:
        """The number of connections that the hub may have, of which it uses at most `most_used`.

        Raises UsageError where `nodes` nodes need more open files than are allowed.
        """
        own = len(self._launch.plan.bindings) * output.MOST_OF_A_WORKER + output.OF_THE_GUARD
        needed = own + nodes + FEW_STRANGERS
        _, most = machine.getrlimit()
        if needed > most != machine.UNLIMITED:
            raise errors.UsageError(
                f"the launcher at which {nodes} nodes meet needs {needed} open files, and "
                f"{most} are allowed; type fewer --nnodes, or raise the limit: ulimit -n {needed}"
            )
        self._supervisor.output.make_room(own + most_used)
        return machine.sysconf("SC_OPEN_MAX") - own

    def _run_workers(self, order: messages.Order) -> None:
        """Run an epoch's workers from their start to their end.

        None are started where processes of earlier workers are left.
        """
        if not self._supervisor.tree.end_all():
            self.exit(failures.LOST, failures.Cause("lost", self._name))
            return
        self._world_size = order.world_size
        launch = with_assigned_ranks(self._launch, order, self._port)
        if launch.logs:
            launch = routes.in_epoch(launch, order.launch)
        try:
            workers = starting.make_workers(launch, order.restart)
            starting.prepare_files(workers, launch.scratch, restart=order.restart)
        except errors.UsageError as error:
            cause = failures.Cause(
                "failure", self._name, order.first_rank, errors.WRONG_USE, f"error: {error}"
            )
            self._node.failed(failures.Failure(cause, machine.running_s()))
            self._ended(False)
            return
        lines = [starting.worker_line(each, launch.node, launch.host) for each in workers]
        if not launch.request.quiet and lines != self._lines:
            self._say(lines)
        self._lines = lines
        self._result = self._supervisor.run(workers)
        self._supervisor.tree.end_all()
        if not self._is_alone:
            ends = tuple((one.rank, one.code) for one in self._result.exits)
            self._ended(self._result.cause is None, ends)

    def _ended(self, is_well: bool, ends: tuple[tuple[int, int], ...] = ()) -> None:
        """Tell the rules, and hold another port: the socket at the old one may still be open."""
        self._port = host.hold_free_port()
        self._node.ended(is_well, self._port.port, ends)
        self._look()

    def _look(self) -> None:
        if self._link:
            self._link.look()

    # What the rules ask for

    def launch(self, order: messages.Order) -> None:
        self._order = order

    def halt(self, cause: failures.Cause, grace_s: float) -> None:
        if self._order:  # both orders came in one turn: these workers are never started
            self._order = None
            self._ended(False)
        else:
            self._supervisor.rules.halt(cause, grace_s)

    def show_stacks(self) -> None:
        is_running = self._supervisor.rules.stage == decisions.RUNNING
        if self._launch.request.asks_for_stacks and is_running:
            self._supervisor.rules.silent()
        else:
            self.show()

    def tell(self, line: str) -> None:
        if not self._server:
            self._say_line(line)

    def exit(self, status: int, cause: failures.Cause | None) -> None:
        self._is_over, self._status, self._cause = True, status, cause

    def _say_line(self, line: str) -> None:
        self._say([line])

    # What happens here

    def end_requested(self, signum: int) -> None:
        """Tell the other launchers once, and again after a second Ctrl-C."""
        rules = self._supervisor.rules
        if rules.stage == decisions.RUNNING or not self.has_met:
            return  # Ctrl-C for the worker that is debugged; or `run` finds it
        is_again = rules.interrupts > 1 and signum == signals.signal.SIGINT
        if is_again or not self._node.report.leaving:
            self._node.signalled(signum, machine.running_s())
            self._look()
        if is_again and self._is_over and self._server:
            self._server.close()  # those that have not heard the end will not

    def failed(self, failure: failures.Failure) -> None:
        age_s = machine.monotonic() - failure.when
        self._node.failed(failure._replace(when=machine.running_s() - age_s))
        self._look()

    def quiet(self, is_silent: bool) -> None:
        self._node.quiet(is_silent)
        self._look()

    def show(
        self, where: tuple[messages.Where, ...] = (), reached: tuple[messages.Reached, ...] = ()
    ) -> None:
        self._node.show(where, reached)
        self._look()

    def launcher_died(self) -> None:
        self._is_alone = True
        if self._server:
            self._server.shut()  # before the workers are dead: its successor may be here

    # The end

    def tell_unable(self, status: int, words: str, signum: int = 0) -> None:
        from spawnlaunch.multinode import unable

        unable.tell_of(self._launch, status, words, signum)

    def report(self, result: failures.LaunchResult) -> None:
        """Print the report on the hub's node, and one line on any other."""
        cause = result.cause
        line = words.ended(self._name, result.status, cause, self._server is not None)
        if line:
            say.say([line], say.PATIENCE_S)
        elif cause is not None:
            self._say_report(cause, result)
        if first := result.first_failure:
            endings.print_environment_hint(first, self._launch, say.PATIENCE_S)
            endings.print_log_place(first)

    def _say_report(self, cause: failures.Cause, result: failures.LaunchResult) -> None:
        """Print the first failure and the ends of this node's ranks.

        The last output of the first failure comes last.
        """
        again = endings.after_restarts(len(result.restarted))
        say.say([f"failed first{again}: {cause.in_words}"], say.PATIENCE_S)
        others = tuple(one for one in result.exits if one != result.first_failure)
        say.say(
            endings.summary(result._replace(cause=None, exits=others), self._name), say.PATIENCE_S
        )
        if cause.words:  # also those of a rank here: other nodes' output may come after them
            endings.print_last_lines(cause.rank, cause.host, words.of_worker(cause.words))

    def elsewhere(self, result: failures.LaunchResult) -> list[tuple[int, int | None]] | None:
        if not self._server:
            return None
        own, codes = {one.rank for one in result.exits}, self._server.hub.ends
        unknown = 0 if result.cause is None else None
        return [(n, codes.get(n, unknown)) for n in range(self._world_size) if n not in own]


def with_assigned_ranks(
    launch: launches.Launch, order: messages.Order, held_port: host.HeldPort | None
) -> launches.Launch:
    """Return the launch with the world that the hub has assigned."""
    resolution = launch.resolution
    world = resolution.world._replace(
        rank=order.first_rank,
        world_size=order.world_size,
        node_rank=order.node_rank,
        nnodes=order.nnodes,
        master_addr=order.master_addr,
        master_port=order.master_port,
        role_rank=order.role_rank,
        role_world_size=order.role_size,
    )
    resolution = resolution._replace(world=world, gathering=None)
    return launch._replace(resolution=resolution, held_port=held_port)


def line_again(launch: launches.Launch, node_rank: int, nproc: int = 0) -> str:
    """The command that starts a lost launcher again, but for what belongs to its node.

    -1 for `node_rank`, 0 for `nproc`: the number is not known.
    """
    request, conf = launch.request, launch.request.rdzv_conf or {}
    own = {"--node-rank": str(node_rank) if node_rank >= 0 else "", "--local-addr": ""}
    if 0 < nproc != len(launch.plan.bindings):
        own["--nproc"] = str(nproc)
    if "is_host" in conf:
        conf = {**conf, "is_host": "0"}
        own["--rdzv-conf"] = ",".join(f"{name}={value}" for name, value in conf.items())
    more = [f"{flag}={value}" for flag, value in own.items() if value]
    return refusals.typed(request, *more, without=own)
