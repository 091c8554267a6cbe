"""The workers of one node, as part of a launch on several: the guard's share in the gang.

The launchers meet before any worker starts. The hub, in the guard of one of them, says when to
start, as which ranks, and when to stop; `gang` has the rules. This file does what they want: it
starts and ends this node's workers, and tells what becomes of them.

    part.launch(start)    the workers of another epoch
    part.halt(grace)      GangStops to the supervisor
    part.exit(status)     the end
    supervisor.listener   what happens here, to the part
"""

from __future__ import annotations

import errno
import os

from spawnlaunch.errors import WRONG_USE, UsageError
from spawnlaunch.gang import member_records as records
from spawnlaunch.gang import messages, token, verdict, wire, words
from spawnlaunch.gang.link import Endpoint
from spawnlaunch.gang.messages import VERSION, Hello
from spawnlaunch.gang.part import Part
from spawnlaunch.gang.server import Server
from spawnlaunch.gang.settings import Settings, settings_of
from spawnlaunch.node.cgroup import memory_kills
from spawnlaunch.run import decisions, report, signals
from spawnlaunch.run.decisions import INTERRUPTED, RUNNING
from spawnlaunch.run.model import Attempt, LaunchResult
from spawnlaunch.run.say import PATIENCE_S, say, write
from spawnlaunch.run.worker import make_workers, prepare_files
from spawnlaunch.world.host import HeldPort, hold_free_port

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from spawnlaunch.gang.messages import Cause, Start
    from spawnlaunch.run.decisions import Event
    from spawnlaunch.run.hang.together import HangOfAll
    from spawnlaunch.run.log_place import AgreedPlace
    from spawnlaunch.run.model import Launch, WorkerExit
    from spawnlaunch.run.supervisor import Supervisor
    from spawnlaunch.world.gathering import Gathering

TURN_S = 5.0


def _as_ours(cause: Cause) -> decisions.Cause:
    """The gang's cause as one launcher has it."""
    number = cause.rank if cause.kind == "failure" else cause.number
    return decisions.Cause(cause.kind, number, cause.number)


class Gang:
    """This launcher's share; `run` sees the launch to its end."""

    def __init__(self, supervisor: Supervisor, end_all: Callable[[], bool]) -> None:
        """Raises UsageError where the launchers cannot meet here.

        `end_all` kills what workers have left; False: something of it stays.
        """
        launch = supervisor.launch
        self._supervisor, self._launch, self._end_all = supervisor, launch, end_all
        gathering = launch.resolution.gathering
        assert gathering is not None
        self._name = gathering.name
        self._start: Start | None = None
        self._is_over = False
        self._is_alone = False  # the launcher above us is gone
        self._status = 0
        self._world_size = 0
        self._cause: Cause | None = None
        self._again: list[Attempt] = []  # epochs that were followed by another
        self._port: HeldPort | None = hold_free_port()
        self._result = LaunchResult(0, None)
        self._say = supervisor.output.say
        request, environ = launch.request, launch.environ
        run_id = launch.resolution.world.run_id
        secret = wire.secret_of(token.find(request.token_file, environ).secret, run_id)
        who = os.urandom(8).hex()
        settings = settings_of(request, gathering, launch.grace_s, launch.failure_grace_s)._replace(
            launch=who
        )
        endpoint = Endpoint(
            gathering.host, gathering.port, run_id, secret, settings.lost_after_s, gathering.ports
        )
        self._place: AgreedPlace | None = None
        if launch.logs:
            from spawnlaunch.run import log_place  # few launches keep files

            self._place = log_place.AgreedPlace(launch)
        self._server = self._serve(endpoint, settings, who, gathering)
        if self._server:
            endpoint = endpoint._replace(
                host=self._server.own_address, port=self._server.port, ports=1
            )
        hello = Hello(
            VERSION,
            self._name,
            who,
            len(launch.plan.bindings),
            rank=gathering.node_rank,
            port=self._port.port,
            addr=request.local_addr or "",
            told=settings.told,
            place=self._place.first_new if self._place else 0,
        )
        self._part = Part(supervisor.loop, endpoint, hello, settings.join_s, self)
        supervisor.listener = self._happened
        self._hang_help: HangOfAll | None = None
        if supervisor.hang_help:
            from spawnlaunch.run.hang.together import HangOfAll

            supervisor.hang_help = self._hang_help = HangOfAll(
                launch,
                supervisor.loop,
                supervisor.output,
                supervisor.happened,
                supervisor.journal,
            )
            self._hang_help.tell = self._quiet

    def _serve(
        self, endpoint: Endpoint, settings: Settings, who: str, gathering: Gathering
    ) -> Server | None:
        """The hub, if it is here."""
        if gathering.is_hub is False:
            return None
        if gathering.is_hub is None:  # others here listen at the next port where this is taken
            endpoint = endpoint._replace(ports=1)
        try:
            return Server(self._supervisor.loop, endpoint, settings, who, self._hub_note)
        except OSError as error:
            if gathering.is_hub is None and error.errno == errno.EADDRINUSE:
                return None  # another launcher of this machine has it
            why = "end what uses the port, or"
            if error.errno == errno.EADDRNOTAVAIL:
                why = "this machine is to have the hub, and has no such address;"
            raise UsageError(
                f"the launchers cannot meet at {endpoint.host}:{endpoint.port}: {error.strerror}; "
                f"{why} type --rdzv-endpoint HOST:PORT, the same everywhere"
            ) from None

    def run(self) -> LaunchResult:
        """Take part until the end; the result has the exit status of all launchers."""
        loop = self._supervisor.loop
        self._part.begin()
        while not self._is_over and not self._is_alone:
            start, self._start = self._start, None
            if start is None:
                loop.turn(TURN_S)
            elif not self._run_workers(start):
                break
        while self._server and not self._server.is_over and not self._is_alone:
            if self._server.hub.phase != "ended":  # it was refused by its own hub
                break
            loop.turn(TURN_S)
        self._supervisor.listener = None
        return self._result._replace(status=self._status)

    def _run_workers(self, start: Start) -> bool:
        """An epoch's workers, from their start to their end; False: something of them is left."""
        self._world_size = start.world_size
        launch = told(self._launch, start, self._port)
        if self._place:
            launch, said = self._place.of(launch, start)
            self._say(said)
        try:
            workers = make_workers(launch, start.total)
            prepare_files(workers, launch.scratch, restart=start.total)
        except UsageError as error:
            failed = records.WorkerFailed(start.first_rank, WRONG_USE, words=f"error: {error}")
            self._part.happened(failed)
            self._part.happened(records.WorkersEnded(False, self._next_port()))
            return True
        self._say(
            f"rank {worker.rank}  {line}"
            for worker, line in zip(workers, launch.lines, strict=False)
        )
        self._result = self._supervisor.run(workers)
        is_gone = self._end_all()
        outcomes = tuple((one.rank, one.code) for one in self._result.exits)
        is_well = self._result.cause is None
        if is_gone and not self._is_alone:
            self._part.happened(records.WorkersEnded(is_well, self._next_port(), outcomes))
        return is_gone

    def _next_port(self) -> int:
        """Another port than before: what listened there may not be quite gone."""
        self._port = hold_free_port()
        return self._port.port

    # What the part wants

    def launch(self, start: Start) -> None:
        self._start = start

    def halt(self, _: Cause, grace_s: float) -> None:
        if self._start:  # both heard in one turn: these workers are never started
            self._start = None
            self._part.happened(records.WorkersEnded(False, self._next_port()))
        else:
            self._supervisor.happened(decisions.GangStops(grace_s))

    def show_stacks(self) -> None:
        if self._hang_help and self._supervisor.state.stage == RUNNING:
            self._supervisor.happened(decisions.Silent())
        else:
            self._part.happened(records.StacksShown())

    def note(self, kind: str, about: tuple[str, ...]) -> None:
        if not self._server:
            self._say_line(words.of_member(kind, about))

    def exit(self, status: int, cause: Cause | None) -> None:
        self._is_over, self._status, self._cause = True, status, cause

    def _hub_note(self, kind: str, about: tuple[str, ...]) -> None:
        if kind == "again":
            what, host, rank, number, healthy_s, used, caused = about
            cause = messages.Cause(what, host, int(rank), int(number))
            again = Attempt(_as_ours(cause), verdict.status(cause), float(healthy_s))
            self._again.append(again)
            if what in verdict.FAULTS:
                most = self._launch.request.max_restarts
                self._say([f"{caused}, after {again.healthy_s:.1f} s: restart {used} of {most}"])
        else:
            self._say_line(words.of_hub(kind, about))

    def _say_line(self, line: str | None) -> None:
        if line:
            self._say([line])

    # What happens here

    def _quiet(self, is_so: bool) -> None:
        self._part.happened(records.Quiet(is_so))

    def _happened(self, event: Event) -> None:
        match event:
            case decisions.Exited(rank, code) if code:
                self._exited(rank, code)
            case decisions.Signalled(signum=signum) if signum in signals.STOP:
                self._told_to_end(signum)
            case decisions.GuardSignalled(signum=signum):
                self._told_to_end(signum)
            case decisions.TimeUp():  # after Ctrl-C, which one worker has had as well
                cause = self._supervisor.state.cause
                if cause is not None and cause.kind == "signal":
                    self._told_to_end(cause.number)
            case decisions.StacksTold():
                if self._hang_help:
                    self._hang_help.stacks_told()
                self._part.happened(records.StacksShown())
            case decisions.LauncherGone():
                self._is_alone = True

    def _told_to_end(self, signum: int) -> None:
        """Tell the others, once; and again where somebody does not want to wait."""
        state = self._supervisor.state
        if state.stage in (RUNNING, INTERRUPTED):  # the worker may answer with a prompt
            return
        is_again = state.interrupts > 1 and signum == signals.signal.SIGINT
        if is_again or not self._part.member.leaving:
            self._part.happened(records.Told(signum))
        if is_again and self._is_over and self._server:
            self._server.close()  # those that have not heard the end will not

    def _exited(self, rank: int, code: int) -> None:
        """Tell of a worker that has ended by itself, badly."""
        one = self._supervisor.exits[-1]
        if one.sent:
            return
        why = report.out_of_memory(self._supervisor.kills_before, memory_kills())
        said = (report.last_words(one) or "")[-report.TAIL_BYTES :]
        evidence = f"; {why}" if why else ""
        failed = records.WorkerFailed(rank, code, one.pid or 0, words=said, oom=evidence)
        self._part.happened(failed)

    # The end

    def leave_word(self, result: LaunchResult) -> int:
        """The report of the hub's node, one line of any other; the result is the exit status."""
        status, cause, launch = result.status, self._cause, self._launch
        failure = self._own_failure(result)
        if launch.result and self._server and not self._write_result(result):
            status = status or os.EX_IOERR
        if failure and launch.error_file:
            report.copy_error_file(failure, launch.error_file)
        line = words.ended(self._name, status, cause, self._server is not None)
        if line:
            say([line], PATIENCE_S)
        elif cause is not None:
            self._say_report(cause, result)
        return status

    def _own_failure(self, result: LaunchResult) -> WorkerExit | None:
        cause = self._cause
        if cause is None or cause.kind != "failure" or cause.host != self._name:
            return None
        return next((one for one in result.exits if one.rank == cause.rank), None)

    def _say_report(self, cause: Cause, result: LaunchResult) -> None:
        """The first failure, how this node's ranks ended, and the last words of the first."""
        n, failure = len(self._again), self._own_failure(result)
        restarts = f", and {n} restart{'s' if n > 1 else ''}" if n else ""
        after = f" after {failure.after_s:.1f} s" if failure else ""
        pid = f" (pid {cause.pid})" if cause.pid else ""
        say([f"failed first: {words.caused(cause)}{after}{pid}{restarts}"], PATIENCE_S)
        others = tuple(one for one in result.exits if one != failure)
        say(report.summary(result._replace(cause=None, exits=others), self._name), PATIENCE_S)
        if cause.words:
            say([f"rank {cause.rank} on {cause.host} said last:"], PATIENCE_S)
            write(cause.words.rstrip("\n") + "\n", PATIENCE_S)

    def _write_result(self, result: LaunchResult) -> bool:
        """The ends of all nodes' ranks."""
        assert self._server is not None
        cause, own = self._cause, {one.rank for one in result.exits}
        codes = dict(self._server.hub.outcomes)
        unknown = 0 if cause is None else None
        elsewhere = [(n, codes.get(n, unknown)) for n in range(self._world_size) if n not in own]
        whole = result._replace(cause=cause and _as_ours(cause), restarted=tuple(self._again))
        return report.write_result(whole, self._launch, elsewhere)


def told(launch: Launch, start: Start, held_port: HeldPort | None) -> Launch:
    """The launch, with the world that the launchers of all nodes have agreed on."""
    resolution = launch.resolution
    world = resolution.world._replace(
        rank=start.first_rank,
        world_size=start.world_size,
        node_rank=start.node_rank,
        nnodes=start.nnodes,
        master_addr=start.master_addr,
        master_port=start.master_port,
    )
    resolution = resolution._replace(world=world, gathering=None)
    return launch._replace(resolution=resolution, held_port=held_port)
