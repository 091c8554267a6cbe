"""The kernel kills a worker for want of memory: the report says so."""

import json
import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from spawnlaunch.node.cgroup import MemoryKills
from spawnlaunch.run.report import out_of_memory
from tests.support.watching import KILLED, launched

MIB = 1 << 20


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A cgroup of 200 MiB: v1's memory controller, or v2's, whichever this machine lets us have."""
    v1, v2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    root, limit = (v1, "memory.limit_in_bytes") if v1.is_dir() else (v2, "memory.max")
    group = root / f"spawnlaunch-test-{uuid.uuid4()}"
    try:
        group.mkdir()
        (group / limit).write_text(str(200 * MIB))
    except OSError as error:
        if group.is_dir():
            group.rmdir()
        pytest.skip(f"needs a memory cgroup of its own: {error}")
    yield group
    group.rmdir()


@pytest.mark.full
def test_a_worker_that_the_kernel_killed_for_want_of_memory_is_reported_as_such(
    cgroup: Path, tmp_path: Path
):
    def enter() -> None:
        (cgroup / "cgroup.procs").write_text(str(os.getpid()))

    script = tmp_path / "eat.py"
    script.write_text(
        "import os, time\n"
        "if os.environ['RANK'] == '1':\n"
        "    eaten = [bytearray(os.urandom(1 << 20)) for _ in range(1000)]\n"
        "time.sleep(600)\n"
    )
    result = tmp_path / "result.json"
    with launched(
        "--nproc", 2, "--result", result, script, directory=tmp_path, preexec=enter
    ) as launch:
        assert launch.status() == KILLED
        assert "failed first: rank 1" in launch.stderr
        evidence, _, used = launch.stderr.splitlines()[-3:]
        assert "the kernel killed 1 process" in evidence
        assert "whose limit is 200 MiB" in evidence
        assert re.search(r"rank 1 had used \d+ MiB, \d+% of the 200 MiB that there are$", used)
    assert "out of memory" in json.loads(result.read_text())["oom"]


def kills(count: int) -> MemoryKills:
    return MemoryKills(count, "/c/memory.events", None)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (kills(3), kills(3), ""),
        (None, kills(3), ""),
        (kills(3), None, ""),
        (
            kills(3), kills(5),
            "out of memory: meanwhile the kernel killed 2 processes of this cgroup "
            "(/c/memory.events: oom_kill 3 to 5)",
        ),
    ],
)  # fmt: skip
def test_kills_are_counted(before, after, said: str):
    assert out_of_memory(before, after) == said
