"""What holds a process from outside is named, and what is advised lets it go."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spawnlaunch.rollcall import held
from tests.support.processes import hold_by_a_debugger, state, until
from tests.support.required import skip_or_fail

SLEEPS = "import time; print(flush=True); time.sleep(1000)"
FREEZERS = (Path("/sys/fs/cgroup/freezer"), Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))
FILES = {"freezer.state": "FROZEN", "cgroup.freeze": "1"}
MIB = 200
PAGED_OUT = f"""
import mmap, time
memory = mmap.mmap(-1, {MIB} << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for place in range(0, len(memory), 4096):
    memory[place] = 1
memory.madvise(21)  # MADV_PAGEOUT of include/uapi/asm-generic/mman-common.h
print(flush=True)
time.sleep(1000)
"""


@contextmanager
def running(code: str = SLEEPS) -> Iterator[int]:
    """A process that has said that it is ready; its pid."""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout
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
    return one.words.partition("; type ")[2]


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
        group = place / "spawnlaunch-test"
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
        outer = place / "spawnlaunch-test"
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


@pytest.mark.full
def test_a_process_whose_memory_is_swapped_out_is_named(tmp_path: Path):
    file = tmp_path / "swap"
    with file.open("wb") as opened:
        for _ in range(2 * MIB):
            opened.write(bytes(1 << 20))
    file.chmod(0o600)
    subprocess.run(["/sbin/mkswap", file], check=True, capture_output=True)
    if subprocess.run(["/sbin/swapon", file], capture_output=True).returncode:
        skip_or_fail("needs the right to switch a file for swapping on (root)")
    try:
        with running(PAGED_OUT) as pid:
            one = found(pid)
            assert (one.kind, one.is_mute) == ("swapped", False)
            (out, _) = map(int, re.findall(r"\d+", one.words))
            assert MIB / 2 < out <= 2 * MIB
    finally:
        subprocess.run(["/sbin/swapoff", file], check=True)
