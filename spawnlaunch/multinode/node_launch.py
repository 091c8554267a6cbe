"""One node's part of a launch on several nodes, in its guard.

The launchers meet before any worker starts. The hub, in the guard of one of them, orders when to
start, as which ranks, and when to stop; `hub` and `member` have the rules. This file carries them
out: it starts and ends this node's workers, and reports to the hub what becomes of them.

    launch(start)         start the workers of another epoch
    halt(cause, grace)    end them, by the rules of `decisions`
    exit(status)          end the launch
    as an observer        pass on to the member what happens here
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from spawnlaunch import output
from spawnlaunch.base import errors, machine, say, signals
from spawnlaunch.multinode import announcements, link, messages, rules, words
from spawnlaunch.multinode.settings import Settings, settings_of
from spawnlaunch.outcome import endings, failures
from spawnlaunch.run import decisions, observer
from spawnlaunch.run.supervisor import Supervisor
from spawnlaunch.workers import launches, routes, starting
from spawnlaunch.world import host, refusals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from spawnlaunch.multinode import server

FEW_STRANGERS = 8  # that the hub has room for, though open files are few


class NodeLaunch(observer.Coordinator):
    """One node's part of the launch; `run` sees it to its end."""

    def __init__(self, supervisor: Supervisor) -> None:
        launch = supervisor.launch
        self._supervisor, self._launch = supervisor, launch
        gathering = launch.resolution.gathering
        assert gathering is not None
        self._name, self._gathering = gathering.name, gathering
        self._start: messages.Start | None = None
        self._is_over = False
        self._is_launcher_dead = False
        self._status = 0
        self._world_size = 0
        self._lines: list[str] = []  # of the workers of the epoch before
        self._cause: failures.Cause | None = None
        self._port: host.LockedPort | None = host.hold_free_port()
        self._result = failures.LaunchResult(0, None)
        self._say = supervisor.output.say
        request, environ = launch.request, launch.environ
        run_id = launch.resolution.world.run_id
        launcher_id = machine.urandom(8).hex()
        settings = settings_of(request, gathering, launch.grace_s, launch.failure_grace_s)._replace(
            launch_name=machine.name_now()
        )
        endpoint = link.endpoint_of(gathering, run_id, request, environ, settings.lost_after_s)
        self._make_server: Callable[[], server.Server] | None = None  # where the hub may be here
        self._server = self._start_hub_if_here(endpoint, settings, launcher_id)
        if self._server:
            # Our member tries the earlier ports too, not our hub's alone. They were taken, perhaps
            # by the hub of another launcher of this launch: then two have node rank 0, and that
            # hub refuses ours. Else each would wait for launchers that have gone to the other.
            ports = self._server.port - endpoint.port + 1
            endpoint = endpoint._replace(host=self._server.local_address, ports=ports)
        hello = messages.Hello(
            self._name,
            launcher_id,
            len(launch.plan.bindings),
            given_node_rank=gathering.node_rank,
            port=self._port.port,
            addr=request.local_addr or "",
            role=request.role,
            flags=settings.flags,
            is_restarted=gathering.is_restarted,
        )
        self._link = link.Link(supervisor.loop, endpoint, hello, settings.join_s, self)
        self._member, self._place = self._link.member, endpoint.place
        supervisor.add(self)

    def _start_hub_if_here(
        self, endpoint: link.Endpoint, settings: Settings, launcher_id: str
    ) -> server.Server | None:
        """Start the hub, if this launcher is to have it."""
        gathering, loop = self._gathering, self._supervisor.loop
        if gathering.is_hub is False:
            return None
        if gathering.is_hub is None:  # others here listen at the next port where this is taken
            endpoint = endpoint._replace(ports=1)
        from spawnlaunch.multinode import server  # most launchers have no hub

        room = self._room(settings.most_launchers, server.most_connections(settings))
        try:
            addresses = endpoint.look_up(loop, lambda: self._supervisor.rules.cause is not None)
            if self._supervisor.rules.cause:  # a signal came meanwhile
                return None
            self._make_server = partial(
                server.Server, loop, endpoint, settings, launcher_id, self._print_line, room,
                addresses, partial(start_line, self._launch),
                lambda reports: self._supervisor.compare(reports, self._world_size),
                remark=words.place_remark(gathering) or words.same_place(gathering),
            )  # fmt: skip
            return self._make_server()
        except OSError as error:
            if gathering.is_hub is None and error.errno == errno.EADDRINUSE:
                return None  # another launcher of this machine has it
            why = "end what uses the port, or " if error.errno == errno.EADDRINUSE else ""
            rank = self._launch.resolution.sources.get("node_rank")
            if rank and rank.value == 0:
                other = "if another launcher has node rank 0, use another --node-rank here; else "
                why = f"{other}{why}"
            if error.errno == errno.EADDRNOTAVAIL:
                why = f"this machine is to have the hub, and has no such address; {why}"
            raise errors.UsageError(
                f"the launchers cannot meet at {endpoint.host}:{endpoint.port}: {error.strerror}; "
                f"{why}use --rdzv-endpoint HOST:PORT, the same everywhere"
            ) from None

    def _room(self, nodes: int, most_used: int) -> int:
        """The number of connections that the hub may have, of which it uses at most `most_used`.

        Raises UsageError where `nodes` nodes need more open files than are allowed.
        """
        of_workers = len(self._launch.plan.bindings) * output.MOST_OF_A_WORKER
        others = of_workers + output.OF_THE_GUARD
        needed = others + nodes + FEW_STRANGERS
        _, most = machine.getrlimit()
        if needed > most != machine.UNLIMITED:
            raise errors.UsageError(
                f"the launcher at which {nodes} nodes meet needs {needed} open files, and "
                f"{most} are allowed; use fewer --nnodes, or raise the limit: ulimit -n {needed}"
            )
        self._supervisor.output.make_room(others + most_used)
        return machine.sysconf("SC_OPEN_MAX") - others

    def run(self) -> failures.LaunchResult:
        """Take part until the end; the result has the exit status of all launchers."""
        loop, cause = self._supervisor.loop, self._supervisor.rules.cause
        if cause is not None:  # a signal came before there was a hub
            for _ in range(2):  # at the second it ends at once, and looks for no hub to tell
                self._member.signalled(-cause.code or signals.signal.SIGTERM)
        self._member.begin()
        while not self._is_over and not self._is_launcher_dead:
            start, self._start = self._start, None
            if start is None:
                loop.turn(rules.TURN_S)
            else:
                self._run_workers(start)
        while self._server and not self._is_launcher_dead:
            # In another phase it has refused this launcher.
            if self._server.hub.phase != "ended" or self._server.is_over:
                break
            loop.turn(rules.TURN_S)
        self._supervisor.drop(self)
        restarted = tuple(self._server.hub.restart_causes) if self._server else ()
        return self._result._replace(status=self._status, cause=self._cause, restarted=restarted)

    def _run_workers(self, start: messages.Start) -> None:
        """Run an epoch's workers from their start to their end.

        None are started where processes of earlier workers are left.
        """
        if not self._supervisor.tree.end_all():
            self.exit(failures.LOST, failures.Cause("lost", self._name))
            return
        self._world_size = start.world_size
        launch = with_assigned_ranks(self._launch, start, self._port)
        if launch.logs:
            launch = routes.in_epoch(launch, start.launch_name)
        try:
            workers = starting.make_workers(launch, start.restart_count)
            starting.prepare_files(workers, launch.scratch, restart=start.restart_count)
        except errors.UsageError as error:
            cause = failures.Cause(
                "failure", self._name, start.first_rank, errors.WRONG_USE, f"error: {error}"
            )
            self._member.worker_failed(messages.Failed(start.epoch, cause))
            self._member.workers_ended(False, self._next_port())
            return
        lines = [starting.worker_line(each, launch.node, launch.host) for each in workers]
        if not launch.request.quiet and lines != self._lines:
            self._say(lines)
        self._lines = lines
        self._result = self._supervisor.run(workers)
        self._supervisor.tree.end_all()
        outcomes = tuple((each.rank, each.code) for each in self._result.exits)
        is_well = self._result.cause is None
        if not self._is_launcher_dead:
            self._member.workers_ended(is_well, self._next_port(), outcomes)

    def _next_port(self) -> int:
        """Hold another port than before: the socket that listened there may still be open."""
        self._port = host.hold_free_port()
        return self._port.port

    # What the member asks for

    def launch(self, start: messages.Start) -> None:
        self._start = start

    def halt(self, cause: failures.Cause, grace_s: float) -> None:
        if self._start:  # both came in one turn: these workers are never started
            self._start = None
            self._member.workers_ended(False, self._next_port())
        else:
            self._supervisor.rules.halt(cause, grace_s)

    def show_stacks(self) -> None:
        is_running = self._supervisor.rules.stage == decisions.RUNNING
        if self._launch.request.needs_stacks and is_running:
            self._supervisor.rules.silent()
        else:
            self._member.stacks_shown()

    def print_line(self, line: str) -> None:
        if not self._server:
            self._print_line(line)

    def seek_hub(self, why: str, left_s: float) -> None:
        if not self._server:
            remark = words.place_remark(self._gathering, self._link.leads_here)
            notes = "; ".join(filter(None, (why, remark)))
            place = f"{self._place} ({notes})" if notes else self._place
            self._print_line(words.waiting("the hub", place, left_s))

    def await_hub(self, limit_s: float) -> None:
        if self._server:
            return
        gathering = self._gathering
        if gathering.is_hub is None and self._make_server:
            with suppress(OSError):  # its machine is this one
                self._server = self._make_server()
        line = ""
        if (
            not gathering.is_restarted_by_manager
        ):  # else the controller that made the pod starts it again
            has_rank = gathering.node_rank >= 0 and self._launch.request.rdzv_backend != "c10d"
            line = start_line(self._launch, 0 if has_rank else -1, is_hub=True)
        self._print_line(words.return_line(limit_s, f"the hub at {self._place}", line))

    def exit(self, status: int, cause: failures.Cause | None) -> None:
        self._is_over, self._status, self._cause = True, status, cause

    def _print_line(self, line: str) -> None:
        self._say([line])

    # What happens here

    def end_requested(self, signum: int) -> None:
        """Send the hub the signal once, and again after a second Ctrl-C."""
        of_node = self._supervisor.rules
        if of_node.stage == decisions.RUNNING:
            return  # Ctrl-C, for the worker that is debugged
        is_second = of_node.interrupts > 1 and signum == signals.signal.SIGINT
        if is_second or not self._member.end_signal:
            self._member.signalled(signum)
        if is_second and self._is_over and self._server:
            self._server.close()  # those that have not read the end will not

    def failed(self, failure: failures.Failure) -> None:
        """Tell the hub of the worker that has just failed by itself."""
        epoch, age_s = self._member.hello.epoch, machine.monotonic() - failure.when
        self._member.worker_failed(messages.Failed(epoch, failure.cause, age_s, failure.early_s))

    def silent(self, is_silent: bool) -> None:
        self._member.report_silence(is_silent)

    def stacks_shown(
        self, report: tuple[tuple[messages.Where, ...], tuple[messages.Reached, ...]]
    ) -> None:
        self._member.stacks_shown(*report)

    def launcher_died(self) -> None:
        self._is_launcher_dead = True
        if self._server:
            self._server.shut()  # before the workers are dead: its successor may be here

    # The end

    def report(self, result: failures.LaunchResult) -> None:
        """Print the report on the hub's node, and one line on any other."""
        cause = result.cause
        line = words.ended(self._name, result.status, cause, self._server is not None)
        if line:
            say.say([line], say.PATIENCE_S)
        elif cause is not None:
            self._print_report(cause, result)
        if first := result.first_failure:
            endings.print_environment_hint(first, self._launch, say.PATIENCE_S)
            endings.print_log_place(first)

    def _print_report(self, cause: failures.Cause, result: failures.LaunchResult) -> None:
        """Print the first failure and the ends of this node's ranks.

        The last output of the first failure comes last.
        """
        restarts = endings.after_restarts(len(result.restarted))
        say.say([f"failed first{restarts}: {cause.in_words}"], say.PATIENCE_S)
        others = tuple(each for each in result.exits if each != result.first_failure)
        say.say(
            endings.summary(result._replace(cause=None, exits=others), self._name), say.PATIENCE_S
        )
        if cause.words:  # also those of a rank here: other nodes' output may come after them
            endings.print_last_lines(cause.rank, cause.host, words.of_worker(cause.words))

    def elsewhere(self, result: failures.LaunchResult) -> list[tuple[int, int | None]] | None:
        if not self._server:
            return None
        local, codes = {each.rank for each in result.exits}, dict(self._server.hub.outcomes)
        unknown = 0 if result.cause is None else None
        return [(n, codes.get(n, unknown)) for n in range(self._world_size) if n not in local]

    @staticmethod
    def tell_unable(launch: launches.Launch, status: int, words: str, signum: int = 0) -> None:
        announcements.announce_for(launch, status, words, signum)


def with_assigned_ranks(
    launch: launches.Launch, start: messages.Start, locked_port: host.LockedPort | None
) -> launches.Launch:
    """Return the launch with the world that the launchers of all nodes have agreed on."""
    resolution = launch.resolution
    world = resolution.world._replace(
        rank=start.first_rank,
        world_size=start.world_size,
        node_rank=start.node_rank,
        nnodes=start.nnodes,
        master_addr=start.master_addr,
        master_port=start.master_port,
        role_rank=start.role_rank,
        role_world_size=start.role_size,
    )
    resolution = resolution._replace(world=world, gathering=None)
    return launch._replace(resolution=resolution, locked_port=locked_port)


def start_line(
    launch: launches.Launch, node_rank: int, nproc: int = 0, is_hub: bool = False
) -> str:
    """The command that starts this launcher again, but for what belongs to another node.

    -1 for `node_rank`, 0 for `nproc`: the number is not known.
    """
    request, conf = launch.request, launch.request.rdzv_conf or {}
    flags = {"--node-rank": str(node_rank) if node_rank >= 0 else "", "--local-addr": ""}
    if 0 < nproc != len(launch.plan.bindings):
        flags["--nproc"] = str(nproc)
    if "is_host" in conf:
        conf = {**conf, "is_host": f"{is_hub:d}"}
        flags["--rdzv-conf"] = ",".join(f"{name}={value}" for name, value in conf.items())
    more = [f"{flag}={value}" for flag, value in flags.items() if value]
    return refusals.typed(request, *more, without=flags)
