"""Whose a process is that somebody has left; in a simulated machine, where numbers are few.

The last ones are about real processes: how they are found and ended, and only they.
"""

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spawnlaunch.base import machine
from spawnlaunch.node import proc
from spawnlaunch.node.proc import below, look
from spawnlaunch.run.tree import EXEC_S, Tree, mark_of, marked, send
from spawnlaunch.workers.environment import MARK
from tests.machine.door import Door
from tests.machine.kernel import Kernel, Node, Process
from tests.support.processes import state, until

Environ = dict[str, str]
OURS, OF_ANOTHER, NOBODYS = {MARK: "run.0"}, {MARK: "another.0"}, {"PATH": "/bin"}
OF_RANK_1 = {MARK: "run.1"}


def found_by(does: Callable[[Process], Any]) -> Any:
    """What a process finds that does this in a simulated machine."""
    kernel = Kernel(seed=1)
    before = Door(kernel).install()
    found = []
    try:
        Node(kernel, "node0").start(lambda process: found.append(does(process)))
        kernel.run(60)
        assert not kernel.tracebacks
        return found[0]
    finally:
        kernel.close()
        machine.__dict__.update(before)


def child(of: Process, environ: Environ, later: Environ | None = None, for_s: float = 1e3) -> int:
    """In a session of its own, with this environment; soon with another one, as in execve(2)."""

    def run() -> None:
        process = of.kernel.current
        assert process is not None
        machine.setsid()
        process.environ = environ
        machine.sleep(EXEC_S / 3)
        process.environ = environ if later is None else later
        machine.sleep(for_s)

    pid = machine.fork(run)
    machine.sleep(EXEC_S / 10)
    return pid


def living(pids: list[int]) -> list[int]:
    machine.sleep(EXEC_S)
    looks = {pid: proc.look(pid) for pid in pids}
    return [pid for pid, look in looks.items() if look and not look.dead]


@pytest.mark.parametrize(
    ("environ", "later", "is_ours"),
    [
        (OURS, None, True), (OF_ANOTHER, None, False), (NOBODYS, None, False), ({}, None, False),
        ({}, OURS, True), ({}, NOBODYS, False),
    ],
)  # fmt: skip
def test_its_mark_tells_whose_one_is_also_while_it_begins_another_program(environ, later, is_ours):
    def look(guard: Process) -> tuple[list[int], int, int]:
        before = proc.look(child(guard, OURS))
        assert before
        tree = Tree("run", adopts=True, foreign=[before])
        pid, calls = child(guard, environ, later), guard.kernel.calls
        return [one.pid for one in tree.living()], pid, guard.kernel.calls - calls

    found, pid, calls = found_by(look)
    assert found == ([pid] if is_ours else [])
    assert calls < 1000  # between its looks it sleeps


def test_while_others_run_what_those_left_that_have_ended_is_killed_and_reaped():
    def kill(guard: Process) -> tuple[list[int], list[int], bool, list[int]]:
        kept, of_running, of_ended, ended = (
            child(guard, each, for_s=for_s)
            for each, for_s in ((OF_RANK_1, 1e3), (OURS, 1e3), (OF_RANK_1, 1e3), (OF_RANK_1, 0.0))
        )
        all_of_them = [kept, of_running, of_ended, ended]
        machine.sleep(EXEC_S)
        is_nobodys = Tree("run", adopts=True).kill_orphans({kept}, {0}, set())
        left = living(all_of_them)
        return all_of_them, left, is_nobodys, proc.child_pids(guard.pid)

    (kept, of_running, of_ended, _), left, is_nobodys, children = found_by(kill)
    assert left == [kept, of_running]
    assert children == [kept, of_running, of_ended]  # who has just been killed is reaped later
    assert is_nobodys


def test_a_session_that_was_empty_once_may_be_of_anybody_by_its_number():
    def kill(guard: Process) -> tuple[list[int], list[int]]:
        tree, ended = Tree("run", adopts=True), set()
        first = child(guard, NOBODYS, for_s=0.0)
        ended.add(first)
        machine.sleep(EXEC_S)
        for _ in range(2):
            tree.kill_orphans((), {0}, ended)
        guard.node.last_pid = first - 1
        again = child(guard, NOBODYS)
        tree.kill_orphans((), {0}, ended)
        return [first, again], living([again])

    (first, again), left = found_by(kill)
    assert first == again
    assert left == [again]


def test_where_proc_is_another_namespaces_zombies_are_reaped_up_to_one_that_is_kept():
    def reap(guard: Process) -> list[tuple[list[int], list[int]]]:
        tree, me = Tree("run", adopts=True), machine.getpid()
        looks = []
        for kept in (0, 1):
            ended = [child(guard, OURS, for_s=0.0) for _ in range(3)]
            machine.sleep(EXEC_S)
            machine.remembered[me] = False  # whether /proc is ours
            assert not tree.kill_orphans(ended[:kept], {0}, set())
            machine.remembered[me] = True
            looks.append((ended, proc.child_pids(me)))
        return looks

    (_, after), (kept, after_another) = found_by(reap)
    assert after == []
    assert after_another == kept


FAMILY = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(1, b'x')
    time.sleep(600)
time.sleep(600)
"""


@pytest.fixture
def run() -> str:
    return f"run-{uuid.uuid4()}"


@pytest.fixture
def family(run: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process, its child in a session of its own, and that one's child."""
    with subprocess.Popen(
        [sys.executable, "-c", FAMILY], stdout=subprocess.PIPE, env={MARK: f"{run}.7"}
    ) as process:
        assert process.stdout
        process.stdout.read(1)
        pids = [one.pid for one in below([one for one in [look(process.pid)] if one])]
        yield process
        for pid in pids:
            if state(pid) not in ("", "Z"):
                os.kill(pid, 9)


def test_descendants_are_found_across_sessions(family: subprocess.Popen[bytes]):
    top = look(family.pid)
    assert top
    assert len(below([top])) == 3


def test_the_mark_of_a_run_is_inherited_and_finds_its_processes(family, run: str):
    assert mark_of(family.pid) == f"{run}.7"
    assert {one.pid for one in marked(run)} == {one.pid for one in below([look(family.pid)])}
    assert marked(run[:-1]) == []


def test_a_process_that_only_has_the_same_number_is_not_killed(family):
    seen = look(family.pid)
    send(9, [seen._replace(start=seen.start - 1)])
    assert family.poll() is None
    send(9, [seen])
    until(lambda: family.poll() is not None, "it has been killed")


def test_a_name_with_parentheses_and_spaces_is_no_trouble(tmp_path: Path):
    program = tmp_path / "a) Z 1 (b"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "600"]) as process:
        try:
            until(
                lambda: " Z 1 " in Path(f"/proc/{process.pid}/comm").read_text(), "it has exec'ed"
            )
            seen = look(process.pid)
            assert seen
            assert (seen.parent, seen.dead) == (os.getpid(), False)
        finally:
            process.kill()
