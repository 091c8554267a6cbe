"""What an error tells the user to type under Slurm works where the error was."""

import re
from pathlib import Path

import pytest

from tests.cluster.slurm import require_slurm
from tests.support.launching import LAUNCHER, WORKERS
from tests.world.asking import Asker, Told, line_behind
from tests.world.truth import check

require_slurm()

REPORTER = str(WORKERS / "report.py")
FULL = pytest.mark.full
PRELOAD = ["--preload=re", "--master-port=25930"]  # flags that the lines must keep


class Place:
    """Where a line is typed: on the head node, in a batch script, or in a shell of a job."""

    def __init__(self, ask: Asker, kind: str, *options: str) -> None:
        self._ask, self._kind, self._options = ask, kind, options

    def type(self, line: str) -> Told:
        if self._kind == "login":
            return self._ask.run(["bash", "-c", line])
        if self._kind == "sbatch":
            return self._ask.sbatch(f"#!/bin/bash\n{line}\n", *self._options)
        if self._kind == "salloc":
            return self._ask.run(["salloc", "--quiet", *self._options, "bash", "-c", line])
        return self._ask.typed(line, *self._options)

    def refuses(self, line: str) -> str:
        told = self.type(line)
        assert (told.status, told.workers) == (2, []), told.stderr
        return told.stderr

    def works(self, line: str, world_size: int) -> Told:
        told = self.type(line)
        assert told.status == 0, told.stderr
        assert "can't honor" not in told.stderr
        check(told.workers, world_size)
        return told


LAUNCH = " ".join([*LAUNCHER, *PRELOAD])
FOUR = ("-N2", "--ntasks-per-node=2", "-c2")


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "options", "step"),
    [
        pytest.param("sbatch", FOUR, "srun", marks=FULL),
        ("sbatch", (*FOUR, "--gpus-per-task=1"), "srun"),
        pytest.param("sbatch", (*FOUR, "--gpus-per-node=2"), "srun", marks=FULL),
        pytest.param("salloc", FOUR, "srun", marks=FULL),
        ("login", (), "srun -N2 --ntasks-per-node=2 -c2"),
    ],
    ids=str,
)
def test_one_launcher_per_node_instead_of_one_in_each_task(
    ask: Asker, kind: str, options: tuple[str, ...], step: str
):
    place = Place(ask, kind, *options)
    error = place.refuses(f"{step} {LAUNCH} --nproc=2 {REPORTER}")
    assert "one task per rank" not in error  # --preload is not for tasks
    told = place.works(line_behind("one launcher per node:", error), 4)
    assert {w["environ"]["SLURM_CPUS_ON_NODE"] for w in told.workers} == {"4"}
    assert {w["environ"]["MASTER_PORT"] for w in told.workers} == {"25930"}
    if "gpus" in str(options):
        assert {w["environ"]["CUDA_VISIBLE_DEVICES"] for w in told.workers} == {"0,1"}


@pytest.mark.full
@pytest.mark.parametrize("step", ["srun -N2 -n3", pytest.param("srun -N2 -n4", marks=FULL)])
def test_one_task_per_rank_instead_of_a_launcher_in_each(ask: Asker, step: str):
    place = Place(ask, "login")
    error = place.refuses(f"{step} {' '.join(LAUNCHER)} --nproc 2 --quiet {REPORTER}")
    told = place.works(line_behind("one task per rank:", error), int(step[-1]))
    assert "rank 0  local 0" not in told.stderr  # --quiet


@pytest.mark.full
def test_both_in_a_heterogeneous_job(ask: Asker):
    script = "#SBATCH -N1 -n2\n#SBATCH hetjob\n#SBATCH -N2 --ntasks-per-node=2\n"
    place = Place(ask, "sbatch")
    error = place.refuses(f"{script}srun --het-group=0-1 {' '.join(LAUNCHER)} --nproc 2 {REPORTER}")
    place.works(script + line_behind("one launcher per node:", error), 6)
    place.works(script + line_behind("one task per rank:", error), 6)


@pytest.mark.full
@pytest.mark.parametrize(
    "flag", ["--tee=3 --log-dir={logs}", pytest.param("--grace=3", marks=FULL)]
)
def test_a_flag_that_needs_a_launcher_gets_one(ask: Asker, tmp_path: Path, flag: str):
    flag = flag.format(logs=tmp_path / "a directory").replace("a directory", "'a directory'")
    place = Place(ask, "sbatch", *FOUR)
    error = place.refuses(f"srun {' '.join(LAUNCHER)} {flag} {REPORTER}")
    place.works(line_behind("one launcher per node:", error), 4)


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "options", "flags", "world_size"),
    [
        pytest.param("sbatch", FOUR, "", 4, marks=FULL),
        pytest.param("sbatch", FOUR, "--nproc=2 --preload=re", 4, marks=FULL),
        ("sbatch", FOUR, "--preload=re", 4),
        pytest.param("sbatch", ("-N1", "-n2"), "", 2, marks=FULL),
        ("salloc", ("-N2",), "--nproc 3", 6),
        pytest.param("salloc", FOUR, "", 4, marks=FULL),
        ("pty", ("-N2",), "", 2),
        pytest.param("pty", ("-N2", "-n4"), "--nproc=2", 4, marks=FULL),
    ],
    ids=str,
)
def test_srun_is_missing(
    ask: Asker, kind: str, options: tuple[str, ...], flags: str, world_size: int
):
    place = Place(ask, kind, *options)
    error = place.refuses(f"{' '.join(LAUNCHER)} {flags} {REPORTER}")
    place.works(line_behind("srun is missing; type", error), world_size)
    alone = place.type(line_behind("for this machine alone:", error))
    assert alone.status == 0, alone.stderr
    nproc = re.search(r"--nproc.(\d)", flags)
    sizes = {worker["environ"]["WORLD_SIZE"] for worker in alone.workers}
    assert sizes == {nproc[1] if nproc else "1"}


@pytest.mark.full
@pytest.mark.parametrize("flags", ["", pytest.param("--nproc=2", marks=FULL)])
def test_srun_is_missing_in_a_heterogeneous_job(ask: Asker, flags: str):
    script = "#SBATCH -N1 -n2\n#SBATCH hetjob\n#SBATCH -N2 --ntasks-per-node=2\n"
    place = Place(ask, "sbatch")
    error = place.refuses(f"{script}{' '.join(LAUNCHER)} {flags} {REPORTER}")
    assert "3 nodes" in error
    place.works(script + line_behind("srun is missing; type", error), 6)


@pytest.mark.full
def test_a_task_with_a_terminal_is_a_rank_all_the_same(ask: Asker):
    step = f"srun -N2 -n2 --pty {' '.join(LAUNCHER)} {REPORTER}"
    told = ask.run(["script", "-qec", step, "/dev/null"])
    check(told.workers, 2)
