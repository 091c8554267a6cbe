"""Play a scenario: launcher, guard, output and nodes as they are, in the simulated machine."""

import importlib
import pkgutil
import signal
import traceback
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import spawnlaunch.hang
import spawnlaunch.multinode
import spawnlaunch.outcome
import spawnlaunch.output
import spawnlaunch.run
import spawnlaunch.workers
import spawnlaunch.world
from spawnlaunch import node, walk
from spawnlaunch.base import machine, say
from spawnlaunch.base.errors import WRONG_USE, UsageError
from spawnlaunch.binding.plan import bind_ranks
from spawnlaunch.cli import parsing
from spawnlaunch.cli.flags import Request
from spawnlaunch.multinode import announcements
from spawnlaunch.node.visible import visible
from spawnlaunch.run import front
from spawnlaunch.workers import files, starting
from spawnlaunch.workers.launches import Launch
from spawnlaunch.world.identity import Capacity
from spawnlaunch.world.resolve import prepare_host, resolve_world
from tests.machine import strangers
from tests.machine.descriptors import Null, Pipe
from tests.machine.door import Door
from tests.machine.kernel import Kernel, Refused
from tests.machine.node import Node
from tests.machine.process import Info, Process
from tests.machine.scenario import Fault, Scenario
from tests.machine.scripts import Player

END_S = 2000.0  # after which a launch that has not ended never will
LATE_S = 0.4
ENVIRON = {"PATH": "/usr/bin:/bin", "HOME": "/root"}
GUARD = "spawnlaunch grd"
BY_PYTHON = {int(signal.SIGPIPE): signal.SIG_IGN, int(signal.SIGXFSZ): signal.SIG_IGN}


def _import_all() -> None:
    """What launches import when they need it: else the first that is played is like no other."""
    for package in (
        spawnlaunch.multinode,
        spawnlaunch.hang,
        spawnlaunch.node,
        spawnlaunch.outcome,
        spawnlaunch.output,
        spawnlaunch.run,
        spawnlaunch.workers,
        spawnlaunch.world,
    ):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith("__main__"):
                importlib.import_module(found.name)


_import_all()


class User:
    """Who reads what a launch writes to one of its streams: some time after it was written.

    But for the time in which the user does something else.
    """

    def __init__(self, kernel: Kernel, scenario: Scenario) -> None:
        self.kernel, self.pipe = kernel, Pipe()
        self.pipe.is_foreign = scenario.is_foreign
        self.pipe.reader.held()
        self.pipe.writer.held()  # by who starts the next launcher
        self._read, self._is_about_to = b"", False
        self._wait_s = scenario.look_s
        begin_s, for_s = scenario.pause or (0.0, 0.0)
        self._pause = kernel.now + begin_s, kernel.now + begin_s + for_s
        self.pipe.reader.touch = self._told  # type: ignore[method-assign]

    def _told(self) -> None:
        if self.pipe.pages and not self._is_about_to:
            self._is_about_to = True
            when = self.kernel.now + self._wait_s
            if self._pause[0] < when < self._pause[1]:
                when = self._pause[1]
            self.kernel.at(when, lambda: self._look(when))

    def _look(self, when: float) -> None:
        """After all stood still, who reads is not the first that goes on."""
        if self.kernel.now > when + LATE_S:
            self.kernel.at(self.kernel.now + LATE_S, self.look)
        else:
            self.look()

    def look(self) -> None:
        self._is_about_to = False
        data = self.pipe.take(1 << 20)
        if data:
            self._read += data
            self.pipe.touch(self.pipe.writers)

    @property
    def text(self) -> str:
        self.look()
        return self._read.decode(errors="replace")


class Host:
    """One node of a scenario: its launchers, one after the other, and all that is below them."""

    def __init__(self, kernel: Kernel, number: int, scenario: Scenario) -> None:
        self.node = Node(kernel, f"node{number}")
        self.launchers: list[Process] = []
        self.workers: list[Process] = []  # in the order in which they became workers
        self.out, self.err = User(kernel, scenario), User(kernel, scenario)
        self.begin: Callable[[], None] = lambda: None  # starts a launcher
        self.shell = self.node.start(_sleeps)
        self.shell.group = self.shell.session = self.shell.pid

    @property
    def launcher(self) -> Process:
        return self.launchers[-1]

    @property
    def guards(self) -> list[Process]:
        return [process for process in self.processes if process.comm == GUARD]

    @property
    def processes(self) -> list[Process]:
        """All that there ever were of the launch."""
        return [p for p in self.node.all if p not in (self.node.init, self.shell)]


class Played(NamedTuple):
    """What came of a scenario."""

    scenario: Scenario
    kernel: Kernel
    hosts: list[Host]
    happened: list[tuple[float, Fault, Process | None]]


def play(scenario: Scenario, trace: bool = False) -> Played:
    requests = [_request(argv) for argv in scenario.argvs]
    _this_machine()  # read before there is another
    kernel = Kernel(scenario.seed, scenario.restless, trace)
    if scenario.refused:
        call, number, since_s, for_s, after = scenario.refused
        since = kernel.now + since_s
        kernel.refused = Refused(call, number, since, since + for_s, after)
    kernel.network.mute, kernel.call_s = scenario.mute, scenario.call_s
    door = Door(kernel)
    before = door.install()
    try:
        hosts = [Host(kernel, number, scenario) for number in range(len(requests))]
        for host, latency_s in zip(hosts, scenario.latencies, strict=False):
            kernel.network.latency_s[host.node] = latency_s
        played = Played(scenario, kernel, hosts, [])
        for number, request in enumerate(requests):
            _prepare(played, number, request)
        for fault in scenario.faults:
            happens = partial(_happens, played, fault)
            kernel.after(
                fault.since, lambda s=fault.at_s, do=happens: kernel.at(kernel.now + s, do)
            )
        kernel.run(END_S)
        return played
    finally:
        kernel.close()
        machine.__dict__.update(before)


def _sleeps(_: Process) -> None:
    machine.sleep(1e9)


@cache
def _request(argv: tuple[str, ...]) -> Request:
    return parsing.parse([*argv, "--no-python", "sh", "worker"], ENVIRON, "/usr/bin/python3")


@cache
def _this_machine() -> Any:
    here = node.read("", None, False)
    return here, visible(here, ENVIRON)


def _prepare(played: Played, number: int, request: Request) -> None:
    """The node's launcher, its user, and its workers' program."""
    host, scenario, kernel = played.hosts[number], played.scenario, played.kernel
    host.node.core_s, host.node.free_s = scenario.core_s, scenario.free_s
    host.node.most_pids = scenario.pids
    if scenario.disk is not None:
        host.node.files.room = [scenario.disk]
    if any(fault.what == "memory" for fault in scenario.faults):
        host.node.count_memory_kills(0)
    is_unable = scenario.unable == number

    def program(process: Process) -> Any:
        rank = int(process.environ["RANK"])
        host.workers.append(process)
        script = scenario.scripts[rank % len(scenario.scripts)]
        return lambda process: Player(process, f"r{rank}").play(script)

    def begin() -> None:
        if host.node.is_down:
            return
        process = host.node.start(lambda process: _command(process, request, is_unable), host.shell)
        process.session, process.group = host.shell.pid, process.pid
        process.command = [*scenario.argvs[number], "--no-python", "sh", "worker"]
        process.handlers, process.is_ours = dict(BY_PYTHON), True
        process.has_thread = scenario.has_thread
        process.fds = {0: (Null().held(), True)}
        for fd, user in ((1, host.out), (2, host.err)):
            process.fds[fd] = user.pipe.writer.held(), True
        process.files_most = scenario.files_most
        host.launchers.append(process)

    host.node.programs, host.begin = program, begin
    kernel.at(kernel.now + scenario.starts[number], begin)


def _command(process: Process, request: Request, is_unable: bool) -> int:
    """What the command does, as `__main__` and `walk` have it."""
    blocked = frozenset(machine.pthread_sigmask(0, (signal.SIGUSR1, signal.SIGUSR2)))
    argv = process.command
    try:
        if is_unable:
            raise UsageError("no such script")
        name = process.node.name
        resolution = resolve_world(request, ENVIRON, name, Capacity(0, 64, "", ""))
        held = None
        if not resolution.world.has_several_nodes:
            resolution, held = prepare_host(resolution, name)
        here, seen = _this_machine()
        plan = bind_ranks(request, here, seen, resolution)
        scratch = files.scratch_path(ENVIRON)
        launch = starting.complete(
            Launch(
                *(request, resolution, plan, ENVIRON, name, scratch, held, seen, here),
                blocked=blocked,
                group=machine.getpgrp(),
            )
        )
        ours = [text for scope, text in launch.notices if scope == say.NODE]  # of the node's files
        say.say(f"warning: {line}" for line in ours if line not in plan.warnings)
        observers, several = walk.hang_help(launch), walk.coordinator(launch)
        return front.run(launch, starting.make_workers(launch), observers, several)
    except UsageError as error:
        say.say([f"error: {error}"])
        announcements.announce(argv, ENVIRON, WRONG_USE, str(error))
        return WRONG_USE
    except Exception as error:
        if not isinstance(error, OSError):
            process.kernel.tracebacks.append(traceback.format_exc())
        return say.fatal(error, report=lambda *how: announcements.announce(argv, ENVIRON, *how))


def _happens(played: Played, fault: Fault) -> None:
    kernel, host = played.kernel, played.hosts[fault.node]
    if fault.what == "freeze":
        kernel.freeze(fault.for_s)
    elif fault.what == "pause":
        kernel.freeze_node(host.node, fault.for_s)
    elif fault.what == "clock":
        kernel.note("machine", f"sets its clock by {fault.number} s")
        kernel.wall += fault.number
    elif fault.what == "cut":
        kernel.network.cut(host.node)
        kernel.at(kernel.now + fault.for_s, lambda: kernel.network.mend(host.node))
    elif fault.what == "power":
        host.node.lose_power()
    elif fault.what in ("silent", "digits"):
        strangers.come(played.hosts[0].node, fault)
    elif fault.what == "return":
        if not host.launchers or host.node.is_down or not host.launcher.is_alive:
            return
        host.launcher.get_signal(signal.SIGKILL, Info(int(signal.SIGKILL)))
        kernel.at(kernel.now + fault.for_s, host.begin)
    else:
        _signalled(played, host, fault)
        return
    played.happened.append((kernel.now, fault, None))


def _signalled(played: Played, host: Host, fault: Fault) -> None:
    for target in _targets(host, fault.to):
        if target.is_alive:
            _reaches(played, fault, target)
    if fault.to == "terminal":  # its shell ends with it
        host.shell.get_signal(signal.SIGKILL, Info(int(signal.SIGKILL)))


def _reaches(played: Played, fault: Fault, target: Process) -> None:
    kernel = played.kernel
    number = fault.number or int(signal.SIGSTOP)
    kernel.note("somebody", f"sends signal {number} to {target}")
    played.happened.append((kernel.now, fault, target))
    if fault.to == "terminal":  # the kernel tells its foreground
        target.node.terminals[target.session] = target.group
        return
    if fault.what == "hold":  # as good as killed
        target.held = target.was_held = True
        played.happened[-1] = (kernel.now, fault._replace(what="signal", number=9), target)
        return
    if fault.what == "memory":
        target.node.run_out_of_memory(target)
        return
    target.get_signal(number, Info(number))
    if fault.what == "stop":
        again = Info(int(signal.SIGCONT))
        kernel.at(kernel.now + fault.for_s, lambda: target.get_signal(again.si_signo, again))


def _targets(host: Host, to: str | int) -> list[Process]:
    """Who is meant, of those of now: "both" of launcher and guard, or the "group" on a terminal.

    Or the launcher, whose "terminal" is gone.
    """
    launcher, guard = host.launchers[-1:], host.guards[-1:]
    if to == "terminal":
        return launcher
    if to == "group":
        return host.node.members(launcher[0].group) if launcher else []
    if isinstance(to, str):
        return {"launcher": launcher, "guard": guard, "both": launcher + guard}[to]
    running = [p for p in host.workers if p.is_alive]
    return [running[to % len(running)]] if running else []
