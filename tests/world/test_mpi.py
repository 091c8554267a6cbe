"""Under a real mpirun of Open MPI and of MPICH: every rank is told what is true of all of them."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cluster.slurm import Slurm, require_slurm
from tests.support.launching import (
    LAUNCHER,
    REPORTER,
    WORKERS,
    clean_environ,
    filed_reports,
    open_mpi,
    run,
)
from tests.support.required import require_programs
from tests.support.truth import Report, check, check_known

require_programs("mpirun.openmpi", "mpirun.mpich", package="openmpi-bin mpich")
pytestmark = pytest.mark.full

PROVER = WORKERS / "meet.py"
OPEN_MPI, MPICH = ["mpirun.openmpi", "--oversubscribe"], ["mpirun.mpich"]
both = pytest.mark.parametrize("mpirun", [OPEN_MPI, MPICH], ids=["Open MPI", "MPICH"])


def said(command: Sequence[object], files: Path) -> tuple[int, str]:
    """The status of a command, and its error."""
    files.mkdir(exist_ok=True)
    done = run(*command, environ=clean_environ(**open_mpi(files), REPORT_DIR=str(files)))
    return done.returncode, done.stderr


def proved(command: Sequence[object], files: Path, world_size: int) -> list[Report]:
    """What workers report, of a command that ends well."""
    assert said(command, files)[0] == 0
    workers = filed_reports(files)
    check(workers, world_size)
    return workers


@both
def test_two_launches_at_once_are_worlds_with_different_ports(
    mpirun: list[str], tmp_path: Path
) -> None:
    command = [*mpirun, "-n", "3", *LAUNCHER, PROVER]
    with ThreadPoolExecutor(2) as pool:
        launches = list(pool.map(lambda i: proved(command, tmp_path / str(i), 3), range(2)))
    assert len({workers[0]["environ"]["MASTER_PORT"] for workers in launches}) == 2


@both
def test_a_launcher_in_each_of_two_processes_is_told_the_command(
    mpirun: list[str], tmp_path: Path
) -> None:
    status, error = said([*mpirun, "-n", "2", *LAUNCHER, "--nproc", "2", REPORTER], tmp_path)
    assert (status, filed_reports(tmp_path)) == (2, [])
    options = ["--map-by", "ppr:1:node"] if mpirun is OPEN_MPI else ["-ppn", "1"]
    assert " no -n)" in error
    assert f" {' '.join(map(str, [*options, *LAUNCHER, '--nproc=2', REPORTER]))};" in error
    proved([*mpirun, *options, *LAUNCHER, "--nproc=2", PROVER], tmp_path, 2)


def on_two_nodes(slurm: Slurm, files: Path, *command: object) -> tuple[int, str, list[Report]]:
    """Status, error and reports of a command on two nodes, which `mpirun` learns from Slurm."""
    files.mkdir()
    environ = {**open_mpi(files), "REPORT_DIR": str(files)}
    job = ["-N2", "--ntasks-per-node=2", "-w", "node[1-2]"]
    done = slurm.salloc(job, list(command), env=environ)
    return done.returncode, done.stderr, filed_reports(files)


@both
def test_two_nodes_are_one_job(slurm: Slurm, mpirun: list[str], tmp_path: Path) -> None:
    """Rank 0 is found among the nodes of the job, or has the address that was typed."""
    require_slurm()
    one = ["--map-by", "ppr:1:node"] if mpirun is OPEN_MPI else ["-n", "2", "-ppn", "1"]
    tasks, node = [mpirun[0], "-n", "3", *LAUNCHER], [mpirun[0], *one, *LAUNCHER, "--nproc=2"]
    status, error, workers = on_two_nodes(slurm, tmp_path / "tasks", *tasks, PROVER)
    assert status == 0, error
    check_known(workers, 3)
    assert {worker["hostname"] for worker in workers} == {"node1", "node2"}
    assert not any("NODE_RANK" in worker["environ"] for worker in workers)
    typed = ("--master-addr", "node1", PROVER)
    for number, launch in enumerate(([*tasks, *typed], [*node, PROVER], [*node, *typed])):
        status, error, workers = on_two_nodes(slurm, tmp_path / str(number), *launch)
        assert status == 0, error
        (check if number else check_known)(workers, 4 if number else 3)
