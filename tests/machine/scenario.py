"""A scenario: command lines, scripts, and what others do to them; all of it from one seed."""

from __future__ import annotations

import errno
import signal
from collections.abc import Callable
from random import Random
from typing import NamedTuple, TypeAlias

from tests.machine import scripts
from tests.machine.scripts import End, Follow, Ignore, Say, Script, Start, Work

TO_END = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
# What calls are refused with (their manual pages) that a launch cannot do without.
NEEDED = (
    ("fork", errno.EAGAIN), ("fork", errno.ENOMEM), ("pipe2", errno.EMFILE),
    ("pipe2", errno.ENFILE), ("execve", errno.EACCES), ("execve", errno.ENOMEM),
    ("mkdir", errno.ENOSPC), ("mkdir", errno.EROFS), ("epoll_ctl", errno.ENOSPC),
)  # fmt: skip
TO_WAIT = ("rt_sigtimedwait", errno.ENOSYS)  # by which the launcher waits for signals
# Calls that a launch does without (docs/limits.md).
SPARED = (
    "memfd_create", "prctl", "pidfd_open", "pidfd_send_signal", "setsid", "epoll_create", "waitid",
    "setitimer",
)  # fmt: skip
SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
PORT = 29400  # of the first node, where launchers meet
HUB = "10.0.0.1"
RUN = "simulated"
SALT, RARE_SALT = "what is seldom", "what is rare"
Kind: TypeAlias = "Callable[[Random, Scenario], Scenario]"


class Fault(NamedTuple):
    """Something that somebody else does at this time, or so long after a moment of the launch."""

    at_s: float
    # "signal", "stop" (and continue); "freeze" of all; the wall "clock" jumps by so many seconds; a
    # worker is killed as "memory" runs out; of a node "pause", "cut", "power", "return" (its
    # launcher is killed, and somebody starts it again after that time); "silent" (strangers who
    # say nothing) and "digits" (one whose name has thousands of them) where the launchers meet
    what: str
    to: str | int = ""  # "launcher", "guard", or a worker: one of those that run
    number: int = 0  # the signal, or by how many seconds the clock jumps
    for_s: float = 0.0
    node: int = 0
    # "started": a worker has; "ended": one has; "told": one was told to end; "": the beginning
    since: str = ""


class Refusal(NamedTuple):
    """A call that the system refuses, with an error, from a time on for so many seconds.

    And not before it was made so many times.
    """

    call: str
    error: int
    since_s: float = 0.0
    for_s: float = 1e9
    after: int = 0


class Scenario(NamedTuple):
    seed: int
    argvs: tuple[tuple[str, ...], ...]  # of each node's launcher
    starts: tuple[float, ...]  # when each begins, in seconds
    scripts: tuple[Script, ...]  # by rank
    faults: tuple[Fault, ...]
    grace_s: float
    core_s: float  # for a core to be written
    restless: float  # how often a call lets others go on, of 1
    look_s: float  # how long after something was written the user reads it
    pause: tuple[float, float] | None  # when the user stops reading, and for how long
    refused: Refusal | None = None
    unable: int | None = None  # this node's launcher cannot take part, as it sees at once
    files_most: int = 1024  # the soft limit of open files
    latencies: tuple[float, ...] = ()  # of each node's link
    mute: tuple[int, float] | None = None  # a name server: after so many answers, for so long
    free_s: float = 0.0  # for the memory of a worker, or of what it has started, to be given back
    call_s: float = 2e-5  # that a call takes, at most
    pids: int = 32768  # numbers of processes that there are
    disk: int | None = None  # bytes that it has left; None: enough

    def flag(self, name: str) -> str | None:
        """The value of a flag of all nodes."""
        argv = self.argvs[0]
        return argv[argv.index(name) + 1] if name in argv else None

    def has(self, what: str) -> bool:
        """Whether this is all part of it: what faults do, a call that is refused, and so on."""
        found = {
            "", *(fault.what for fault in self.faults), self.refused and self.refused.call,
            self.mute and "mute", self.core_s and "core", self.free_s and "free",
            (self.unable is not None or len(set(map(len, self.argvs))) > 1) and "unable",
            self.files_most < 1024 and "few-files", any(self.latencies) and "far",
        }  # fmt: skip
        return found.issuperset(what.split())

    @property
    def is_needed_refused(self) -> bool:
        """Whether a call is refused that a launch cannot do without."""
        return self.refused is not None and self.refused[:2] in (*NEEDED, TO_WAIT)

    def is_refused(self, call: str) -> bool:
        return self.refused is not None and self.refused.call == call

    @property
    def is_alone(self) -> bool:
        return len(self.argvs) == 1

    @property
    def is_elastic(self) -> bool:
        return ":" in (self.flag("--nnodes") or "")

    @property
    def restarts(self) -> int:
        return int(self.flag("--max-restarts") or 0)


def generated(seed: int, nodes: int | None = None) -> Scenario:
    """Any launch; `nodes` None: of one node. To one of four something seldom happens.

    And one of thirty is such that it shows what hardly any other would.
    """
    made, random = _usual(seed, nodes), Random(f"{RARE_SALT} {seed} {nodes}")
    if random.random() < 1 / 30:
        return random.choice(RARE[made.is_alone])(random, made)
    random = Random(f"{SALT} {seed} {nodes}")
    return random.choice(SELDOM[made.is_alone])(random, made) if random.random() < 0.25 else made


def _usual(seed: int, nodes: int | None) -> Scenario:
    random = Random(seed)
    n_nodes = nodes or 1
    n = random.choice((1, 2, 2, 3, 4)) if n_nodes == 1 else random.choice((1, 1, 2))
    grace_s = random.choice((0.5, 2.0, 5.0, 30.0))
    argv = ["--nproc", str(n), "--bind", "none", "--grace", str(grace_s)]
    if random.random() < 0.25:
        argv += ["--max-restarts", str(random.randrange(1, 3))]
    if n_nodes == 1:
        argv += ["--master-port", "29500", *_flags_of_one(random)]
    made = Scenario(
        seed,
        (tuple(argv),),
        tuple(random.choice((0.0, 0.01, 2.0)) * random.random() for _ in range(n_nodes)),
        _scripts(random, n * n_nodes, "--hang-timeout" in argv),
        tuple(sorted(_faults(random, n, n_nodes))),
        grace_s,
        core_s=random.choice((0.0, 0.001, 0.5, 3.0)),
        restless=random.choice((0.02, 0.2, 1.0)),
        look_s=random.choice((0.001, 0.05, 1.0)),
        pause=(random.random() * 5, random.choice((1.0, 20.0))) if random.random() < 0.15 else None,
        files_most=random.choice((14, 18, 24)) if random.random() < 0.1 else 1024,
    )
    if random.random() < 0.15:
        error = random.choice((errno.EPERM, errno.ENOSYS))
        made = made._replace(refused=Refusal(random.choice(SPARED), error))
    if n_nodes > 1:
        return _of_several(random, made, n_nodes)
    choice = random.random()
    if choice < 0.05:  # much is said, and slowly read, as all stands still
        flood = Script([Say(2, random.randrange(2, 8), 40_000), End(random.choice((0, 1)))])
        freeze = Fault(3.0 * random.random(), "freeze", for_s=11.0, since="ended")
        return made._replace(
            scripts=(flood, *made.scripts[1:]), faults=(*made.faults, freeze), look_s=1.0
        )
    return _of_much_memory(random, made, n) if choice > 0.9 else made


def _of_much_memory(random: Random, made: Scenario, n: int) -> Scenario:
    """Processes that end slowly; now and then all stands still meanwhile."""
    made = made._replace(free_s=random.choice((0.3, 3.0)))
    if random.random() < 0.5:
        since = random.choice(("ended", "told"))
        freeze = Fault(3.0 * random.random(), "freeze", for_s=11.0, since=since)
        code = random.choice((0, 1))
        leave = tuple(scripts.leaving(random, code) for _ in range(n))
        made = made._replace(faults=(*made.faults, freeze), scripts=leave)
    return made


def _of_several(random: Random, made: Scenario, n_nodes: int) -> Scenario:
    """What only several nodes have: how they meet, and what may be in the way."""
    least = random.choice((n_nodes, n_nodes, n_nodes - 1))
    size = f"{max(least, 1)}:{n_nodes}" if least < n_nodes else str(n_nodes)
    is_named, is_mute = random.random() < 0.5, random.random() < 0.1
    host = "node0" if is_mute else HUB
    argv = list(made.argvs[0])
    if any(fault.what == "return" for fault in made.faults) and random.random() < 0.7:
        made = made._replace(scripts=tuple(map(scripts.lasting, made.scripts)))
        argv += ["--max-restarts", "2"] if not made.restarts else []
    argv += ["--rdzv-endpoint", f"{host}:{PORT}", "--rdzv-id", RUN, "--nnodes", size]
    argvs = [[*argv, *(("--node-rank", str(rank)) if is_named else ())] for rank in range(n_nodes)]
    unlike = random.random()
    if unlike < 0.04:
        argvs[random.randrange(1, n_nodes)] += ["--max-restarts", "5"]
    made = made._replace(argvs=tuple(map(tuple, argvs)))
    if is_mute:
        told = Fault(
            3.0 * random.random(), "signal", "launcher", 15, node=random.randrange(n_nodes)
        )
        made = made._replace(
            mute=(random.randrange(6), random.choice((1.0, 100.0))),
            faults=random.choice((made.faults, (told,))),
        )
    if 0.04 < unlike < 0.1:
        made = made._replace(unable=random.randrange(n_nodes))
    if random.random() < 0.2:
        ways = tuple(random.choice((0.0, 0.0, 0.05, 0.2)) for _ in range(n_nodes))
        made = made._replace(latencies=ways)
    if random.random() < 0.05:
        times = random.random() * 3, random.choice((1.0, 8.0))
        made = made._replace(refused=Refusal("accept4", random.choice(SHORTAGES), *times))
    return made


def _scripts(random: Random, n: int, are_watched: bool) -> tuple[Script, ...]:
    """Of all ranks; now and then one fails because of another, leaves something, or goes on."""
    found = [scripts.generated(random) for _ in range(n)]
    choice = random.random()
    if are_watched and choice < 0.5:
        found = [scripts.talkative(random) for _ in found]
    elif n > 1 and choice < 0.15:
        first, victim = random.sample(range(n), 2)
        begin_s = random.choice((0.1, 2.0))
        code = random.choice((-11, -11, -7, -6, 1, 7))
        after_s = random.choice((0.001, 0.03, 0.06, 0.3)) * (0.5 + random.random())
        found = [Script([Work(60.0), End(0)]) for _ in found]
        found[first] = Script([Work(begin_s), End(code)])
        found[victim] = Script([Follow(first, after_s), End(random.choice((1, 1, -6)))])
    elif choice < 0.25:
        found = [scripts.leaving(random) for _ in found]
    return tuple(found)


def _flags_of_one(random: Random) -> list[str]:
    """Some of those that change what is waited for, and for how long."""
    flags: list[str] = []
    if random.random() < 0.2:
        flags += ["--hang-timeout", random.choice(("1", "6"))]
        flags += ["--on-hang", "kill"] if random.random() < 0.7 else []
    if random.random() < 0.1:
        flags += ["--timeout", random.choice(("1", "8"))]
    if random.random() < 0.1:
        flags += ["--failure-grace", random.choice(("0.2", "3"))]
    if random.random() < 0.1:
        flags += ["--result", "/work/result.json"]
    if random.random() < 0.1:
        flags += ["--log-dir", "/work/logs", "--tee", "3"]
    return flags


def _faults(random: Random, n: int, n_nodes: int) -> list[Fault]:
    return [_fault(random, n, n_nodes) for _ in range(random.choice((0, 0, 1, 1, 2, 3)))]


def _fault(random: Random, n: int, n_nodes: int) -> Fault:
    since = random.choice(("", "", "", "started", "ended", "told"))
    times = (0.0005, 0.02, 0.5, 3.0) if since else (0.002, 0.05, 1.0, 5.0, 20.0)
    at_s = random.choice(times) * random.random()
    fault = _of_one_or_several(random, n, n_nodes, at_s)
    return fault if fault.what in ("silent", "digits") else fault._replace(since=since)


def _of_one_or_several(random: Random, n: int, n_nodes: int, at_s: float) -> Fault:
    node = random.randrange(n_nodes)
    choice = random.random()
    if choice < 0.15:
        return Fault(at_s, "freeze", for_s=random.choice((0.5, 11.0, 100.0)))
    if n_nodes > 1 and choice < 0.4:
        return _fault_of_several(random, at_s, node)
    to = random.choice(("launcher", "launcher", "guard", random.randrange(n)))
    if choice < 0.65:
        return Fault(at_s, "stop", to, for_s=random.choice((0.3, 3.0, 11.0, 40.0)), node=node)
    others = (signal.SIGKILL, signal.SIGUSR1, signal.SIGWINCH)
    number = random.choice((*TO_END, *TO_END, *others))
    if to == "guard":
        number = random.choice((signal.SIGKILL, signal.SIGTERM))
    return Fault(at_s, "signal", to, int(number), node=node)


def _fault_of_several(random: Random, at_s: float, node: int) -> Fault:
    choice = random.random()
    if choice < 0.45:
        return Fault(at_s, "cut", for_s=random.choice((0.5, 3.0, 8.0, 40.0)), node=node)
    if choice < 0.6:
        return Fault(at_s, "power", node=node)
    if choice < 0.85:
        return Fault(at_s, "return", for_s=random.choice((0.1, 3.0, 20.0)), node=node)
    if choice < 0.95:
        return Fault(at_s / 10, "silent", for_s=60.0)
    return Fault(at_s / 10, "digits")


# What is seldom


def _clock_jumps(random: Random, made: Scenario) -> Scenario:
    jump = Fault(3.0 * random.random(), "clock", number=random.choice((-86400, -5, 5, 86400)))
    return made._replace(faults=(*made.faults, jump))


def _few_numbers(_: Random, made: Scenario) -> Scenario:
    """Numbers of processes are soon used again."""
    return made._replace(pids=40)


def _slow_calls(random: Random, made: Scenario) -> Scenario:
    return made._replace(call_s=random.choice((2e-4, 1e-3)))


def _pause(random: Random, made: Scenario) -> Scenario:
    """One node stands still, as its container or cgroup does."""
    since = random.choice(("", "started", "ended", "told"))
    for_s = random.choice((0.5, 3.0, 11.0, 100.0))
    node = random.randrange(len(made.argvs))
    pause = Fault(3.0 * random.random(), "pause", for_s=for_s, node=node, since=since)
    return made._replace(faults=(*made.faults, pause))


def _disk_is_full(random: Random, made: Scenario) -> Scenario:
    argv = made.argvs[0]
    if "--log-dir" not in argv:
        argv += ("--log-dir", "/work/logs", "--tee", "3")
    return made._replace(argvs=(argv,), disk=random.choice((0, 30, 1000)))


def _typed(random: Random, made: Scenario) -> Scenario:
    """Ctrl-C or the like, which all processes get that have the terminal; or Ctrl-Z, and fg.

    Or the terminal is closed.
    """
    at_s, since = 3.0 * random.random(), random.choice(("", "started", "told"))
    key = Fault(at_s, "signal", "group", int(random.choice(TO_END)), since=since)
    choice = random.random()
    if choice > 0.7:
        key = Fault(at_s, "signal", "terminal", int(signal.SIGHUP), since=since)
    elif choice < 0.4:
        number = int(signal.SIGTSTP)
        key = Fault(at_s, "stop", "group", number, random.choice((0.3, 11.0)), since=since)
    return made._replace(faults=(*made.faults, key))


def _both_are_killed(random: Random, made: Scenario) -> Scenario:
    """Launcher and guard, at the same time; what workers have started would run on."""
    calm = tuple(scripts.lasting(Script([Say(1, 3), Work(1.0)])) for _ in made.scripts)
    node = random.randrange(len(made.argvs))
    kill = Fault(3.0 * random.random(), "signal", "both", int(signal.SIGKILL), node=node)
    return made._replace(scripts=calm, faults=(*made.faults, kill))


def _memory_runs_out(random: Random, made: Scenario) -> Scenario:
    kill = Fault(3.0 * random.random(), "memory", random.randrange(4), 9, since="started")
    return made._replace(faults=(*made.faults, kill))


def _what_is_left_is_deaf(random: Random, made: Scenario) -> Scenario:
    """What workers leave does not end when it is told to."""
    deaf = Script([Ignore(signal.SIGTERM), Ignore(signal.SIGHUP), Work(300.0), End(0)])
    how = random.choice(("child", "session", "daemon"))
    leaving = Script([Start(deaf, how), Work(random.random()), End(random.choice((0, 0, 0, 1)))])
    return made._replace(scripts=(leaving, *made.scripts[1:]))


def _refused_later(random: Random, made: Scenario) -> Scenario:
    error = random.choice((errno.EPERM, errno.ENOSYS, errno.ENOMEM, errno.EINVAL))
    refusal = Refusal(random.choice(SPARED), error, after=random.randrange(12))
    if made.is_alone and refusal.call == "prctl":  # the guard's first; the launcher has had its own
        refusal = refusal._replace(after=1 + refusal.after % 2)
        left = Start(Script([Work(300.0), End(0)]), "naked")
        leave = Script([left, Work(random.random()), End(1)])
        made = made._replace(scripts=(leave, *made.scripts[1:]), faults=())
    return made._replace(refused=refusal)


def _needed_is_refused(random: Random, made: Scenario) -> Scenario:
    call, error = random.choice(NEEDED)
    return made._replace(refused=Refusal(call, error, after=random.choice((0, 1, 2, 5, 20))))


def _killed_before_the_start(random: Random, made: Scenario) -> Scenario:
    """A launcher is, while one that begins late is waited for."""
    last = len(made.argvs) - 1
    starts = (*made.starts[:-1], 8.0)
    to, node = random.choice(("launcher", "guard")), random.randrange(1, last) if last > 1 else last
    kill = Fault(3.5 + 3.0 * random.random(), "signal", to, int(signal.SIGKILL), node=node)
    return made._replace(starts=starts, faults=(kill,))


def _killed_and_back(random: Random, made: Scenario) -> Scenario:
    argvs = tuple((*argv, "--max-restarts", "3") for argv in made.argvs)
    calm = tuple(map(scripts.lasting, made.scripts))
    back = Fault(
        1.0 + 3.0 * random.random(), "return", for_s=random.choice((0.1, 3.0, 20.0)),
        node=random.randrange(len(made.argvs)), since="started",
    )  # fmt: skip
    if random.random() < 0.3:  # nodes of different sizes
        argvs = tuple((*argv, "--nproc", str(random.randrange(1, 4))) for argv in argvs)
    return made._replace(argvs=argvs, scripts=calm, faults=(back,))


def _all_are_watched(random: Random, made: Scenario) -> Scenario:
    """Silence is a hang only where all nodes are silent."""
    more = ["--hang-timeout", random.choice(("1", "6"))]
    more += ["--on-hang", "kill"] if random.random() < 0.7 else []
    if random.random() < 0.7:
        silent = Script([Say(1, 1), Work(60.0), End(0)], shows_stacks=random.random() < 0.5)
        talkers = random.choice((0, 1))
        made = made._replace(
            scripts=tuple(
                scripts.talkative(random) if n < talkers else silent
                for n in range(len(made.scripts))
            ),
            faults=random.choice((made.faults, ())),
        )
        if random.random() < 0.5:  # on one node it takes longer until all stacks are shown
            shows = silent._replace(shows_stacks=True)
            many = shows._replace(steps=[*[Start(shows, "child")] * 4, *shows.steps])
            each = (*[shows] * (len(made.scripts) - 1), many)
            made = made._replace(scripts=each, faults=(), pause=None)
    return made._replace(argvs=tuple((*argv, *more) for argv in made.argvs))


def _all_stands_as_they_are_told(random: Random, made: Scenario) -> Scenario:
    """In between two calls; and they do not end by themselves."""
    deaf = Script([Ignore(signal.SIGTERM), Say(1, 2), Work(200.0), End(0)])
    faults = (
        Fault(random.random(), "signal", "launcher", int(signal.SIGTERM), since="started"),
        Fault(4e-4 * random.random(), "freeze", for_s=random.choice((3.0, 11.0)), since="told"),
    )
    return made._replace(scripts=(deaf,) * len(made.scripts), faults=faults)


def _suspended_as_they_end(random: Random, made: Scenario) -> Scenario:
    """Ctrl-Z while they have their grace, and fg some time later."""
    deaf = Script([Ignore(signal.SIGTERM), Say(1, 2), Work(200.0), End(0)])
    stop = int(signal.SIGTSTP)
    faults = (
        Fault(random.random(), "signal", "launcher", int(signal.SIGTERM), since="started"),
        Fault(0.3 * random.random(), "stop", "group", stop, for_s=11.0, since="told"),
    )
    return made._replace(scripts=(deaf,) * len(made.scripts), faults=faults)


def _launcher_may_not_wait(random: Random, made: Scenario) -> Scenario:
    """For signals, from some time on: then it cannot go on, and its guard ends all."""
    refusal = Refusal(*TO_WAIT, after=random.randrange(1, 5))
    told = Fault(2.0 * random.random(), "signal", "launcher", int(signal.SIGUSR1), since="started")
    return made._replace(refused=refusal, faults=(told,) * 4)


def _stacks_are_shown(random: Random, made: Scenario) -> Scenario:
    """By those who are silent, or would be."""
    watched = _all_are_watched(random, made) if "--hang-timeout" not in made.argvs[0] else made
    return watched._replace(
        scripts=tuple(script._replace(shows_stacks=True) for script in watched.scripts)
    )


def _all_is_written_down(_: Random, made: Scenario) -> Scenario:
    more = ("--result", "/work/result.json")
    return made._replace(argvs=tuple((*argv, *more) for argv in made.argvs))


def _nobody_reads_the_end(random: Random, made: Scenario) -> Scenario:
    """Who reads has stopped before much is said, and for longer than anybody waits."""
    flood = Script([Say(2, random.randrange(2, 8), 40_000), End(0)])
    calm = Script([Work(random.random()), End(0)])
    floods = (flood, *(random.choice((flood, calm)) for _ in made.scripts[1:]))
    return made._replace(scripts=floods, faults=(), pause=(0.0, 100.0))


def _fails_far_away(random: Random, made: Scenario) -> Scenario:
    """A worker that is far from the hub, and because of it one that is not.

    What the hub hears first was not the first: news has its way, and a core is dumped meanwhile.
    """
    n_nodes = len(made.argvs)
    far, near = random.randrange(1, n_nodes), random.randrange(n_nodes - 1)
    near += near >= far
    first, victim = (node * len(made.scripts) // n_nodes for node in (far, near))
    way_s = random.choice((0.05, 0.2))
    found = [Script([Work(60.0), End(0)]) for _ in made.scripts]
    found[first] = Script([Work(0.5 + random.random()), End(random.choice((-11, -11, 1, 7)))])
    found[victim] = Script([Follow(first, 0.4 * random.random()), End(random.choice((1, 1, -6)))])
    return made._replace(
        scripts=tuple(found), faults=(), core_s=random.choice((0.0, 0.3, 3.0)),
        latencies=tuple(way_s if node == far else 0.0 for node in range(n_nodes)),
    )  # fmt: skip


SELDOM: dict[bool, tuple[Kind, ...]] = {
    True: (
        _clock_jumps, _few_numbers, _slow_calls, _pause, _disk_is_full, _typed, _both_are_killed,
        _memory_runs_out, _refused_later, _needed_is_refused, _what_is_left_is_deaf,
        _stacks_are_shown, _all_stands_as_they_are_told, _launcher_may_not_wait,
        _suspended_as_they_end,
    ),
    False: (
        _clock_jumps, _few_numbers, _slow_calls, _pause, _both_are_killed, _refused_later,
        *[_killed_before_the_start] * 3, _killed_and_back, _all_are_watched, _all_is_written_down,
    ),
}  # fmt: skip

RARE: dict[bool, tuple[Kind, ...]] = {True: (_nobody_reads_the_end,), False: (_fails_far_away,)}


def seldom(kind: Kind, seed: int, nodes: int | None) -> Scenario:
    """A launch to which this happens."""
    return kind(Random(f"{SALT} {seed} {nodes}"), _usual(seed, nodes))
