"""What a launch does without: on one node the gang, its modules and sockets; on most the hub."""

import sys
from pathlib import Path

from tests.multinode.launchers import Launchers
from tests.support.launching import run
from tests.support.processes import NET, sockets, until
from tests.support.watching import launched

TELLING = (sys.executable, "-X", "importtime", "-m", "spawnlaunch")


def test_one_node_imports_nothing_of_it(tmp_path: Path) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text("")
    done = run(*TELLING, "--nproc", "2", worker)
    assert done.returncode == 0
    assert "spawnlaunch.run.supervisor" in done.stderr
    assert "spawnlaunch.multinode" not in done.stderr


def test_only_the_launcher_with_the_hub_imports_it(tmp_path: Path) -> None:
    both = Launchers(tmp_path)
    for rank in ("0", "1"):
        words = ("--nnodes=2", f"--node-rank={rank}", "--no-python", "true")
        both.start(rank, *words, backend=("--rdzv-backend=static",), command=TELLING)
    assert set(both.statuses().values()) == {0}
    hub, member = both.said("0"), both.said("1")
    assert "spawnlaunch.multinode.hub" in hub
    assert "spawnlaunch.multinode.member" in member
    assert "spawnlaunch.multinode.hub" not in member
    assert "unicodedata" not in hub + member


def test_one_node_opens_no_socket(tmp_path: Path) -> None:
    """While its workers run; MASTER_PORT is theirs."""
    flags = ("--nproc", "2", "--max-restarts", "1", "--no-python")
    worker = f"touch {tmp_path}/$RANK; until [ -e {tmp_path}/done ]; do sleep 0.05; done"
    with launched(*flags, "sh", "-c", worker, directory=tmp_path) as launch:
        until(lambda: all((tmp_path / rank).exists() for rank in "01"), "both workers")
        assert [sockets(pid) & {*NET} for pid in (launch.pid, launch.guard)] == [set(), set()]
        (tmp_path / "done").touch()
        assert launch.status() == 0
