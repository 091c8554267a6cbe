"""Scenarios, each of them from one seed."""

import errno
import signal
from collections.abc import Callable
from functools import partial
from random import Random

from tests.machine import scripts, seldom
from tests.machine.scenario import (
    HUB,
    PORT,
    RUN,
    SHORTAGES,
    SPARED,
    TO_END,
    Fault,
    Refusal,
    Scenario,
)
from tests.machine.scripts import End, Follow, Say, Script, Work

SALT, RARE_SALT = "what is seldom", "what is rare"
FOREIGN_SALT = "who reads"


def generated(seed: int, nodes: int | None = None) -> Scenario:
    """Any launch; `nodes` None: of one node. To one of four something seldom happens.

    And one of thirty is such that it shows what hardly any other would.
    """
    made, random = _usual(seed, nodes), Random(f"{RARE_SALT} {seed} {nodes}")
    made = made._replace(is_foreign=Random(f"{FOREIGN_SALT} {seed}").random() < 0.3)
    if random.random() < 1 / 30:
        return random.choice(seldom.RARE[made.is_alone])(random, made)
    random = Random(f"{SALT} {seed} {nodes}")
    is_usual = random.random() >= 0.25
    return made if is_usual else random.choice(seldom.SELDOM[made.is_alone])(random, made)


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


def all_seldom() -> dict[str, Callable[[int], Scenario]]:
    """Of each kind, and of one node and several, the launch of a seed to which it happens."""
    return {
        f"{kind.__name__} {'one node' if is_alone else 'several'}": partial(_with, kind, is_alone)
        for is_alone, kinds in seldom.SELDOM.items()
        for kind in dict.fromkeys(kinds + seldom.RARE[is_alone])
    }


def _with(kind: seldom.Kind, is_alone: bool, seed: int) -> Scenario:
    nodes = None if is_alone else 2 + seed % 3
    return kind(Random(f"{SALT} {seed} {nodes}"), _usual(seed, nodes))
