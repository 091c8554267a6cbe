"""What holds a process from outside is named, and what is advised lets it go."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spawnlaunch.hang import held
from tests.support.processes import hold_by_a_debugger, state, until
from tests.support.required import skip_or_fail

SLEEPS = "import time; print(flush=True); time.sleep(1000)"
FREEZERS = (Path("/sys/fs/cgroup/freezer"), Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))
GROUP = f"spawnlaunch-test-{os.getpid()}"
FILES = {"freezer.state": "FROZEN", "cgroup.freeze": "1"}


@contextmanager
def running() -> Iterator[int]:
    """A process that has said that it is ready; its pid."""
    with subprocess.Popen([sys.executable, "-c", SLEEPS], stdout=subprocess.PIPE) as process:
        try:
            process.stdout.readline()
            yield process.pid
        finally:
            process.kill()


def found(pid: int) -> held.Held:
    one = held.look(pid, held.status(pid))
    assert one
    return one


def advised(one: held.Held) -> str:
    """The command that is to be typed."""
    return one.words.partition("; run ")[2]


def test_nothing_holds_a_process_that_sleeps_or_has_ended():
    with running() as pid:
        assert held.look(pid, held.status(pid)) is None
    assert held.look(pid, held.status(pid)) is None


def test_a_stopped_process_goes_on_by_what_is_advised():
    with running() as pid:
        os.kill(pid, signal.SIGSTOP)
        until(lambda: held.look(pid, held.status(pid)), "it is stopped")
        assert (found(pid).kind, found(pid).is_mute) == ("stopped", True)
        subprocess.run(["sh", "-c", advised(found(pid))], check=True)
        until(lambda: held.look(pid, held.status(pid)) is None, "it goes on")


def test_a_debugger_is_named():
    with running() as pid:
        let_go = hold_by_a_debugger(pid)
        assert found(pid).words == "stopped by a debugger"
        let_go()
        until(lambda: held.look(pid, held.status(pid)) is None, "it goes on")


def freezers() -> list[Path]:
    """Where a group can be made that freezes."""
    able = []
    for place in FREEZERS:
        group = place / GROUP
        try:
            group.mkdir()
        except OSError:
            continue
        if any((group / file).exists() for file in FILES):
            able.append(place)
        group.rmdir()
    return able


@pytest.mark.parametrize("is_below", [False, True])
def test_a_frozen_process_goes_on_by_what_is_advised(is_below: bool):
    """Also where a group above its own was frozen."""
    places = freezers()
    if not places:
        skip_or_fail("needs a control group that it may freeze (root)")
    for place in places:
        outer = place / GROUP
        inner = outer / "below" if is_below else outer
        inner.mkdir(parents=True)
        freeze = next(outer / file for file in FILES if (outer / file).exists())
        with running() as pid:
            (inner / "cgroup.procs").write_text(f"{pid}")
            try:
                assert held.look(pid, held.status(pid)) is None
                freeze.write_text(FILES[freeze.name])
                assert found(pid).kind == "frozen"
                assert held.look(pid, held.status(pid), may_be_frozen=False) in (None, (
                    "disk-sleep", held.WORDS["disk-sleep"]
                ))  # fmt: skip
            finally:
                subprocess.run(["sh", "-c", advised(found(pid))], check=True)
            until(lambda pid=pid: held.look(pid, held.status(pid)) is None, "it goes on")
        until(lambda pid=pid: state(pid) == "", "it has ended")
        for group in dict.fromkeys([inner, outer]):
            group.rmdir()


@pytest.mark.parametrize(
    ("out_kib", "there_kib", "kind"),
    [(200 << 10, 9, "swapped"), (64 << 10, 9, None), (200 << 10, 200 << 10, None)],
)
def test_a_process_most_of_whose_memory_is_swapped_out_is_named(
    out_kib: int, there_kib: int, kind: str | None
):
    with running() as pid:
        status = held.status(pid)
        assert status["VmSwap"].endswith(" kB")
        sizes = {"VmSwap": f"{out_kib} kB", "VmRSS": f"{there_kib} kB"}
        one = held.look(pid, {**status, **sizes})
    assert (one and one.kind) == kind
    assert one is None or (one.words[:21], one.is_mute) == ("swapped out: 200 MiB,", False)
