"""Under a real mpirun of Open MPI and of MPICH: every rank is told what is true of all of them."""

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cluster.slurm import Slurm, require_slurm
from tests.support.launching import (
    LAUNCHER,
    ROOT,
    WORKERS,
    clean_environ,
    filed_reports,
    open_mpi,
    run,
)
from tests.support.required import require_programs
from tests.support.truth import Report, check, check_known

require_programs("mpirun.openmpi", "mpirun.mpich", package="openmpi-bin mpich")

PROVER, REPORTER = str(WORKERS / "meet.py"), str(WORKERS / "report.py")
OPEN_MPI = ["mpirun.openmpi", "--oversubscribe"]
MPICH = ["mpirun.mpich"]

both = pytest.mark.parametrize("mpirun", [OPEN_MPI, MPICH], ids=["Open MPI", "MPICH"])
# Where the variables that differ are not what is tested.
mostly_one = pytest.mark.parametrize(
    "mpirun",
    [
        pytest.param(OPEN_MPI, id="Open MPI", marks=pytest.mark.full),
        pytest.param(MPICH, id="MPICH"),
    ],
)


class Done(subprocess.CompletedProcess):
    """A finished command, and what its workers reported."""

    workers: list[Report]


def ask(command: Sequence[str], files: Path) -> Done:
    files.mkdir(exist_ok=True)
    done = run(*command, environ=clean_environ(**open_mpi(files), REPORT_DIR=str(files)))
    result = Done(command, done.returncode, done.stdout, done.stderr)
    result.workers = filed_reports(files)
    return result


def proved(command: Sequence[str], files: Path, world_size: int) -> list[Report]:
    """What workers reported, of a command that ends well."""
    done = ask(command, files)
    assert done.returncode == 0, done.stderr
    check(done.workers, world_size)
    return done.workers


@mostly_one
def test_one_process_per_rank(mpirun: list[str], tmp_path: Path):
    proved([*mpirun, "-n", "3", *LAUNCHER, PROVER], tmp_path, 3)


@pytest.mark.full
@both
def test_ranks_find_each_other_through_torch(mpirun: list[str], tmp_path: Path):
    proved([*mpirun, "-n", "3", *LAUNCHER, str(WORKERS / "prove.py")], tmp_path, 3)


@pytest.mark.full
@mostly_one
def test_one_launcher_with_two_workers(mpirun: list[str], tmp_path: Path):
    proved([*mpirun, "-n", "1", *LAUNCHER, "--nproc", "2", PROVER], tmp_path, 2)


@pytest.mark.full
@both
def test_a_launcher_in_each_of_two_processes_is_told_the_command(mpirun: list[str], tmp_path: Path):
    done = ask([*mpirun, "-n", "2", *LAUNCHER, "--nproc", "2", REPORTER], tmp_path)
    assert done.returncode == 2
    assert done.workers == []
    options = ["--map-by", "ppr:1:node"] if mpirun is OPEN_MPI else ["-ppn", "1"]
    line = " ".join([*options, *LAUNCHER, "--nproc=2", REPORTER])
    assert " no -n)" in done.stderr
    assert f" {line};" in done.stderr
    proved([*mpirun, *options, *LAUNCHER, "--nproc=2", PROVER], tmp_path, 2)


@pytest.mark.full
@mostly_one
def test_two_launches_at_once_have_different_ports(mpirun: list[str], tmp_path: Path):
    command = [*mpirun, "-n", "2", *LAUNCHER, PROVER]
    with ThreadPoolExecutor(2) as pool:
        launches = list(pool.map(lambda i: proved(command, tmp_path / str(i), 2), range(2)))
    assert len({workers[0]["environ"]["MASTER_PORT"] for workers in launches}) == 2


@mostly_one
def test_the_exit_status_is_the_workers(mpirun: list[str], tmp_path: Path):
    done = ask([*mpirun, "-n", "1", *LAUNCHER, "--no-python", "sh", "-c", "exit 7"], tmp_path)
    assert done.returncode == 7


@pytest.fixture
def across(slurm: Slurm, tmp_path: Path):
    """Runs a command on two nodes, which `mpirun` learns from Slurm."""
    require_slurm()

    def across(*command: str) -> Done:
        files = tmp_path / "files"
        files.mkdir(exist_ok=True)
        allocate = ["salloc", "--quiet", "-N2", "--ntasks-per-node=2", "-w", "node[1-2]"]
        environ = {**open_mpi(files), "REPORT_DIR": str(files)}
        done = slurm.run([*allocate, *command], env=environ)
        result = Done(command, done.returncode, done.stdout, done.stderr)
        result.workers = filed_reports(files)
        return result

    return across


@pytest.mark.full
@both
def test_two_nodes_are_one_job_with_the_address_that_was_asked_for(across, mpirun: list[str]):
    done = across(*mpirun[:1], "-n", "3", *LAUNCHER, "--master-addr", "node1", PROVER)
    assert done.returncode == 0, done.stderr
    check_known(done.workers, 3)
    assert {worker["hostname"] for worker in done.workers} == {"node1", "node2"}
    for worker in done.workers:
        assert "NODE_RANK" not in worker["environ"]


@pytest.mark.full
@mostly_one
def test_one_launcher_on_each_of_two_nodes(across, mpirun: list[str]):
    each = ["--map-by", "ppr:1:node"] if mpirun is OPEN_MPI else ["-n", "2", "-ppn", "1"]
    launcher = [*LAUNCHER, "--nproc", "2", "--master-addr", "node1", PROVER]
    done = across(*mpirun[:1], *each, *launcher)
    assert done.returncode == 0, done.stderr
    check(done.workers, 4)


@pytest.mark.full
@both
def test_two_nodes_without_an_address_find_rank_0_in_the_jobs_nodes(across, mpirun: list[str]):
    done = across(*mpirun[:1], "-n", "3", *LAUNCHER, PROVER)
    assert done.returncode == 0, done.stderr
    check_known(done.workers, 3)


@pytest.mark.full
@both
def test_one_launcher_on_each_node_finds_rank_0_too(across, mpirun: list[str]):
    each = ["--map-by", "ppr:1:node"] if mpirun is OPEN_MPI else ["-n", "2", "-ppn", "1"]
    done = across(*mpirun[:1], *each, *LAUNCHER, "--nproc", "2", PROVER)
    assert done.returncode == 0, done.stderr
    check(done.workers, 4)


@pytest.mark.full
def test_rank_0_on_another_node_than_the_first_says_so(across):
    launcher = [*LAUNCHER, REPORTER]
    first, second = (["-n", "1", "--host", host, *launcher] for host in ("node2", "node1"))
    done = across(*OPEN_MPI, *first, ":", *second)
    assert done.returncode == 2
    assert "rank 0 is on node2" in done.stderr
    assert "type --master-addr node2" in done.stderr


@pytest.mark.full
@both
def test_a_rank_that_lost_its_variables_is_refused(mpirun: list[str], tmp_path: Path):
    lost = ["env", "-i", f"PATH={os.environ['PATH']}", f"PYTHONPATH={ROOT}"]
    done = ask([*mpirun, "-n", "2", *lost, *LAUNCHER, REPORTER], tmp_path)
    assert done.returncode == 2
    assert "variables is here" in done.stderr
    assert f"type {sys.executable} -m spawnlaunch --standalone " in done.stderr
