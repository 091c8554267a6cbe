"""A spare takes the place of a node that a real Slurm loses."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cluster import configuration
from tests.cluster import slurm as cluster
from tests.cluster.slurm import Slurm, require_slurm
from tests.slurm.scripts import DIRECTORY, environ, sized
from tests.support.patience import PATIENCE_S
from tests.support.processes import until

require_slurm()
pytestmark = pytest.mark.full


@pytest.fixture
def breakable() -> Iterator[Slurm]:
    """A cluster that the test may break, which soon notices that a node is gone."""
    slurm = cluster.start(extra="SlurmdTimeout=15\n")
    yield slurm
    slurm.stop()


def test_a_spare_takes_the_place_of_a_node_that_slurm_loses(
    breakable: Slurm, tmp_path: Path
) -> None:
    """Its slurmd, its launcher and its workers are killed in the middle; the job ends well."""
    worker = (
        f"echo $RANK $WORLD_SIZE > {tmp_path}/$SLURMD_NODENAME.$TORCHELASTIC_RESTART_COUNT; "
        "test $TORCHELASTIC_RESTART_COUNT = 0 && sleep 600; exit 0"
    )
    job = breakable.submit(
        DIRECTORY / "spares.sh",
        *sized(3, 1, 1),
        f"--output={tmp_path}/log",
        f"--chdir={tmp_path}",
        arguments=("--failure-grace", "1", "--no-python", "sh", "-c", worker),
        env=environ(),
    )
    until(lambda: all((tmp_path / f"node{n}.0").exists() for n in (0, 1)), "the first attempt")
    kill_node(breakable, "node1")
    state = breakable.wait_for(job, PATIENCE_S)
    log = (tmp_path / "log").read_text()
    assert state == ("COMPLETED", 0, 0), log
    assert "node1 was lost" in log
    assert (tmp_path / "node2.1").read_text() == "1 2\n"
    assert (tmp_path / "node0.1").read_text() == "0 2\n"
    assert not (tmp_path / "node2.0").exists()


def kill_node(slurm: Slurm, name: str) -> None:
    """End its slurmd, and all that runs on it, which has its network."""
    mine = cluster.processes_in(slurm.pid_namespace())
    title = f"slurmd\0-D\0-f\0{configuration.CONF}\0-N\0{name}\0"
    (slurmd,) = [each for each in mine if title in (each / "cmdline").read_text()]
    network = os.stat(slurmd / "ns/net").st_ino
    for process in mine:
        with suppress(FileNotFoundError, ProcessLookupError):
            if os.stat(process / "ns/net").st_ino == network:
                os.kill(int(process.name), signal.SIGKILL)
