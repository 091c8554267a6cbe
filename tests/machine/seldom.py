"""What happens to few launches only, on top of what may happen to any."""

import errno
import signal
from collections.abc import Callable
from random import Random
from typing import TypeAlias

from tests.machine import scripts
from tests.machine.scenario import NEEDED, SPARED, TO_END, Fault, Refusal, Scenario
from tests.machine.scripts import End, Follow, Ignore, Say, Script, Start, Work

Kind: TypeAlias = "Callable[[Random, Scenario], Scenario]"


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


def _other_threads_take_signals(random: Random, made: Scenario) -> Scenario:
    """Of the launcher: two that end the job come at once, and others."""
    at_s = 2.0 * random.random()
    several = random.sample((*TO_END, signal.SIGUSR1), random.randrange(3))
    told = tuple(Fault(at_s, "signal", "launcher", int(n), since="started") for n in several)
    return made._replace(has_thread=True, faults=(*made.faults[:1], *told))


def _guard_is_held(random: Random, made: Scenario) -> Scenario:
    """It cannot run any more; before or after that the launcher is told to end the job."""
    deaf = tuple(map(scripts.lasting, made.scripts))
    at_s, number = random.random(), int(random.choice(TO_END))
    later_s = at_s + random.choice((0.001, 3.0, 100.0))
    since = random.choice(("started", "told"))
    faults = (
        Fault(at_s, "hold", "guard", since=since),
        Fault(later_s, "signal", "launcher", number, since="started"),
    )
    return made._replace(scripts=deaf, faults=faults)


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
        _stacks_are_shown, _all_stands_as_they_are_told, _suspended_as_they_end,
        _other_threads_take_signals, _guard_is_held,
    ),
    False: (
        _clock_jumps, _few_numbers, _slow_calls, _pause, _both_are_killed, _refused_later,
        *[_killed_before_the_start] * 3, _killed_and_back, _all_are_watched, _all_is_written_down,
    ),
}  # fmt: skip

RARE: dict[bool, tuple[Kind, ...]] = {True: (_nobody_reads_the_end,), False: (_fails_far_away,)}
