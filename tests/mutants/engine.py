"""Tries mutants in children of one process, which has imported all and has run each test once.

A child puts the changed code into the functions that are there, and runs the tests that have
entered them, the quickest first; then it plays the simulated launches that have. A mutant costs a
fork and the tests until the first that fails. A launcher that a test starts is a fork too.
"""

import functools
import gc
import os
import resource
import signal
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import greenlet
import hypothesis
import pytest

from tests.mutants import forked
from tests.mutants.mutate import ROOT, Mutant, mutated

SLOW_S = 20.0  # of CPU: a test that takes longer is not run for each mutant
KEEPS: Any = type(functools.cache(len))  # what functools.cache makes
CLUSTERS = {"slurm_session", "bound"}  # fixtures with a real Slurm, whose tasks are no children
LEAST_CPU_S, LEAST_S = 4, 60.0  # that a check has before its mutant hangs: CPU, and a clock's
PATIENCE = 10  # times as much, where the clock has ended it once

Entered = set[tuple[str, int]]  # functions: path and first line


class Check(NamedTuple):
    """A test or a simulated launch."""

    name: str
    run: Callable[[], bool]  # whether all is well
    entered: Entered
    cost_s: float  # of CPU
    took_s: float


class Tests:
    """A plugin of pytest, which after the collection does what is to be done with the tests."""

    def __init__(self, then: Callable[[pytest.Session], None]) -> None:
        self._then, self.failed = then, False

    def pytest_collection(self) -> None:
        """After conftest.py and before the tests: the same examples each time, and none is kept."""
        hypothesis.settings.register_profile(
            "mutants", deadline=None, derandomize=True, database=None,
            phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
            suppress_health_check=list(hypothesis.HealthCheck),
        )  # fmt: skip
        hypothesis.settings.load_profile("mutants")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._then(session)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed = self.failed or report.failed

    def checks(self, session: pytest.Session, say: Callable[[str], None]) -> list[Check]:
        """Of the tests that pass and are quick; what all share is made before."""
        top: Any = types.SimpleNamespace(listchain=lambda: [session])
        found = []
        forked.install()
        for item in session.items:
            if CLUSTERS.intersection(getattr(item, "fixturenames", ())):
                continue

            def run(item: pytest.Item = item) -> bool:
                self.failed = False
                item.ihook.pytest_runtest_protocol(item=item, nextitem=top)
                return not self.failed

            check, is_well = measured(item.nodeid, run)
            if not is_well:
                say(f"fails without a mutant: {item.nodeid}")
            elif check.cost_s < SLOW_S and check.entered:
                found.append(check)
        return found


def launches(seeds: int, several: int, seldom: int) -> list[Check]:
    """Simulated launches of one node, of `several` nodes, and of each kind that is seldom."""
    from tests.machine.generating import all_seldom, generated
    from tests.machine.play import play
    from tests.machine.properties import broken
    from tests.machine.scenario import Scenario

    played: dict[str, Callable[[], Scenario]] = {}
    for seed, nodes in [
        *((seed, None) for seed in range(seeds)),
        *((seed, 2 + seed % 3) for seed in range(several)),
    ]:
        played[f"seed {seed} of {nodes or 1} nodes"] = functools.partial(generated, seed, nodes)
    for name, kind in all_seldom().items():
        for seed in range(seldom):
            played[f"seed {seed} of {name}"] = functools.partial(kind, seed)
    found = []
    for name, make in played.items():
        check, is_well = measured(name, lambda make=make: not broken(play(make())))  # type: ignore[misc]
        found += [check] if is_well else []
    return found


def measured(name: str, run: Callable[[], bool]) -> tuple[Check, bool]:
    """Run a check, and note what it enters, also in launchers that it starts."""
    with tempfile.TemporaryDirectory() as folder:
        entered: Entered = set()
        forked.AT_FIRST[:] = [lambda: _note_in_a_file(Path(folder, str(os.getpid())))]
        since, clock_s = _used(), time.monotonic()
        before = greenlet.settrace(lambda *_: sys.settrace(_tracer(entered.add)))
        sys.settrace(_tracer(entered.add))
        try:
            is_well = run()
        finally:
            sys.settrace(None)
            greenlet.settrace(before)
            forked.AT_FIRST.clear()
        cost_s, took_s = sum(_used()) - sum(since), time.monotonic() - clock_s
        for file in Path(folder).iterdir():
            for line in file.read_text().splitlines():
                path, _, first = line.rpartition(" ")
                entered.add((path, int(first)))
    return Check(name, run, entered, cost_s, took_s), is_well


def _tracer(note: Callable[[tuple[str, int]], None]) -> Callable[..., None]:
    package = str(ROOT / "spawnlaunch")

    def tracer(frame: types.FrameType, _event: str, _argument: object) -> None:
        code = frame.f_code
        if code.co_filename.startswith(package):
            note((code.co_filename, code.co_firstlineno))

    return tracer


def _note_in_a_file(path: Path) -> None:
    """A launcher may end, or become another program, without a word: each function is a line."""
    seen: Entered = set()

    def note(each: tuple[str, int]) -> None:
        if each not in seen:
            seen.add(each)
            with path.open("a") as file:
                file.write(f"{each[0]} {each[1]}\n")

    sys.settrace(_tracer(note))


def _used() -> list[float]:
    """The CPU of this process, and of those that it has started."""
    each = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return [used.ru_utime + used.ru_stime for used in each]


# A mutant in a process of its own


class Outcome(NamedTuple):
    """What came of a mutant."""

    by: str  # which check found it; "": none
    cpu_s: float
    tried: int  # checks that could have


def try_all(
    tried: list[Mutant], checks: list[Check], at_once: int
) -> Iterator[tuple[Mutant, Outcome]]:
    """Each mutant's outcome, as they come.

    One that the clock has ended may only have waited for a busy machine. It is tried once more
    at the end, with more time.
    """
    waiting, running = list(reversed(tried)), dict[int, tuple[Mutant, int, int, float]]()
    late: set[Mutant] = set()
    while waiting or running:
        while waiting and len(running) < at_once:
            mutant = waiting.pop()
            mine = fitting(mutant, checks)
            reader, writer = os.pipe()
            least_s = LEAST_S * (PATIENCE if mutant in late else 1)
            limit_s = least_s + 5 * sum(check.took_s for check in mine)
            pid = os.fork()
            if pid == 0:
                _end_as_child(mutant, mine, writer, least_s)
            os.close(writer)
            running[pid] = mutant, reader, len(mine), time.monotonic() + limit_s
        for pid, (mutant, reader, count, end) in list(running.items()):
            gone, status, used = os.wait4(pid, os.WNOHANG)
            if not gone:
                if time.monotonic() > end:
                    os.killpg(pid, signal.SIGKILL)
                continue
            del running[pid]
            with os.fdopen(reader) as told:
                by = told.read()
            if not by and mutant not in late and status in (signal.SIGKILL, signal.SIGALRM):
                late.add(mutant)
                waiting.insert(0, mutant)
                continue
            if os.WIFSIGNALED(status):
                by += f" (it took too long: signal {os.WTERMSIG(status)})"
            yield mutant, Outcome(by.strip(), used.ru_utime + used.ru_stime, count)
        time.sleep(0.01)


def fitting(mutant: Mutant, checks: list[Check]) -> list[Check]:
    """The checks that have entered the function, the quickest first."""
    if not mutant.function:
        return []
    place = str(ROOT / mutant.path), mutant.begins
    mine = [check for check in checks if place in check.entered]
    return sorted(mine, key=lambda check: check.took_s)


def _end_as_child(mutant: Mutant, checks: list[Check], writer: int, least_s: float) -> None:
    status = 1
    try:
        os.setpgid(0, 0)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (1, 2):
            os.dup2(null, fd)
        put_in(mutant)
        for check in checks:
            limit = int(sum(_used()) + LEAST_CPU_S + 5 * check.cost_s)
            resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
            signal.setitimer(signal.ITIMER_REAL, least_s + 5 * check.took_s)
            if not _holds(check):
                os.write(writer, check.name.encode())
                break
        status = 0
    finally:
        os._exit(status)


def _holds(check: Check) -> bool:
    try:
        return check.run()
    except BaseException:
        return False


def put_in(mutant: Mutant) -> None:
    """Put a mutant's code into the function that it is in, and forget what was kept of calls."""
    path = str(ROOT / mutant.path)
    code = {
        (each.co_name, each.co_firstlineno): each
        for each in _codes(compile(mutated(mutant), path, "exec", dont_inherit=True))
    }
    gc.unfreeze()  # what tests/conftest.py has frozen is not among the objects
    for each in gc.get_objects():
        if isinstance(each, types.FunctionType) and each.__code__.co_filename == path:
            own = each.__code__
            changed = code.get((own.co_name, own.co_firstlineno))
            if changed is not None and own.co_name != "<lambda>":
                each.__code__ = changed
        elif isinstance(each, KEEPS):
            each.cache_clear()


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _codes(each)
