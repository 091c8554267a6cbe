"""Finding processes and ending them, and only them."""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from spawnlaunch.node.proc import below, look
from spawnlaunch.run.environment import MARK
from spawnlaunch.run.tree import mark_of, marked, send
from tests.support.processes import state, until

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
