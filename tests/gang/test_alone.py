"""A launch on one node has nothing of a gang: no module is imported, and no socket opened."""

import os
import sys
from pathlib import Path

from tests.support.launching import run
from tests.support.processes import until
from tests.support.watching import launched


def test_one_node_imports_nothing_of_it(tmp_path: Path) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text("")
    words = ("-X", "importtime", "-m", "spawnlaunch", "--nproc", "2", worker)
    done = run(sys.executable, *words)
    assert done.returncode == 0
    assert "spawnlaunch.run.supervisor" in done.stderr
    assert "spawnlaunch.gang" not in done.stderr


def test_one_node_opens_no_socket(tmp_path: Path) -> None:
    """While its workers run; MASTER_PORT is theirs."""
    flags = ("--nproc", "2", "--max-restarts", "1", "--no-python")
    worker = f"touch {tmp_path}/$RANK; until [ -e {tmp_path}/done ]; do sleep 0.05; done"
    with launched(*flags, "sh", "-c", worker, directory=tmp_path) as launch:
        until(lambda: all((tmp_path / rank).exists() for rank in "01"), "both workers")
        assert [sockets(pid) for pid in (launch.launcher.pid, launch.guard)] == [[], []]
        (tmp_path / "done").touch()
        assert launch.status() == 0


def sockets(pid: int) -> list[str]:
    """Of the internet; workers are spoken to by others."""
    links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
    inodes = {link[8:-1] for link in links if link.startswith("socket:[")}
    tables = (Path(f"/proc/{pid}/net/{name}") for name in ("tcp", "tcp6", "udp", "udp6"))
    rows = [row for table in tables if table.exists() for row in table.read_text().splitlines()[1:]]
    return [row for row in rows if row.split()[9] in inodes]
