"""What a launch costs each of its ranks has a budget: modules, look-ups and memory.

Each budget is what a launch took when it was last set, and a fifth more for other versions of
Python and other machines. Raise one only with the reason for it. `make counts` shows the figures.
"""

import re
from pathlib import Path

from tests.counts import lines
from tests.counts.imported import imported
from tests.counts.lookups import lookups, traced
from tests.counts.ways import WAYS
from tests.support.processes import children
from tests.support.required import require_programs
from tests.support.watching import launched

MODULES = 133  # of a launch of a second that fails, beyond those of a bare Python: 111 today
LOOKUPS = 400  # stat and open of a task beyond a bare Python, each times all ranks: 320 today
MEMORY_KIB = 10_400  # anonymous memory of the launcher and its guard: 8,700 today
HEAVY = ("torch", "numpy", "dataclasses", "asyncio", "multiprocessing", "subprocess")


def test_a_launch_imports_few_modules_and_none_beside_the_core(tmp_path: Path) -> None:
    """Some are imported once a launch has lasted, others once it has failed."""
    way = WAYS["two workers"]
    (tmp_path / "worker.py").write_text("import sys, time; time.sleep(2); sys.exit(3)")
    modules = imported(way, tmp_path, *way.words("worker.py"))
    modules -= imported(way, tmp_path, "-c", "pass")
    assert "spawnlaunch.outcome.endings" in modules
    assert len(modules) <= MODULES, sorted(modules)
    assert modules.isdisjoint(HEAVY)
    beside = tuple(map(lines.module, lines.BESIDE))
    assert [each for each in modules if f"{each}.".startswith(beside)] == []


def test_a_task_looks_up_few_files(tmp_path: Path) -> None:
    require_programs("strace", package="strace")
    way = WAYS["a task"]
    (tmp_path / "worker.py").write_text("")
    task = lookups(traced(way, tmp_path, *way.words("worker.py")))
    bare = lookups(traced(way, tmp_path, "-c", "pass"))
    assert task - bare <= LOOKUPS, (task, bare)


def test_launcher_and_guard_need_little_memory(tmp_path: Path) -> None:
    """What only they have; files that are mapped, such as Python itself, others share."""
    shell = ("--nproc=2", "--no-python", "sh", "-c", "echo ready; exec sleep 600")
    with launched(*shell, directory=tmp_path) as launch:
        launch.read_until(2)
        pids = [launch.pid, *children(launch.pid)]
        assert len(pids) == 2
        assert sum(map(anonymous_kib, pids)) <= MEMORY_KIB
        launch.send(15)
        launch.status()


def anonymous_kib(pid: int) -> int:
    """Pss_Anon of smaps_rollup, as in proc(5): of what a fork shares, each has a part."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.findall(r"^Pss_Anon: +(\d+)", rollup, re.MULTILINE)[0])
