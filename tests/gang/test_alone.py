"""A launch on one node has nothing of a gang: no module is imported."""

import sys
from pathlib import Path

from tests.support.launching import run


def test_one_node_imports_nothing_of_it(tmp_path: Path) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text("")
    words = ("-X", "importtime", "-m", "spawnlaunch", "--nproc", "2", worker)
    done = run(sys.executable, *words)
    assert done.returncode == 0
    assert "spawnlaunch.run.supervisor" in done.stderr
    assert "spawnlaunch.gang" not in done.stderr
