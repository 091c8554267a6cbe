"""The scripts that need no machine of their own run to their ends under a real Slurm."""

import json
import shutil
import tarfile
import uuid
import venv
from pathlib import Path
from typing import Any

import pytest

from spawnlaunch.bench import results
from tests.cluster.slurm import BatchJob, Slurm, require_slurm
from tests.slurm.scripts import DIRECTORY, SHORT, STEPS, TINY, environ, sized, start_again
from tests.support.launching import REPORTER, ROOT, filed_reports
from tests.support.patience import PATIENCE_S
from tests.support.processes import nothing_left_behind, until
from tests.support.truth import check

require_slurm()
pytestmark = pytest.mark.full

COMPUTED = ("step", "samples", "loss", "lr", "validation_loss")
# Ranks of several nodes share the CPUs of this machine.
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
# Rank 3 fails, and the others would sleep for ten minutes.
FAIL = ("--no-python", "sh", "-c", "test $RANK = 3 && sleep 1 && exit 7; sleep 600")


def history(out: Path) -> list[dict[str, Any]]:
    """What a run computed, exactly; its times are left out."""
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [{name: line[name] for name in COMPUTED if name in line} for line in lines]


def completed(
    slurm: Slurm,
    script: str,
    size: tuple[str, ...],
    *arguments: str,
    options: tuple[str, ...] = (),
    **extra: str,
) -> BatchJob:
    """A job of this script that ends well."""
    job = slurm.sbatch(
        DIRECTORY / script, *size, *options, arguments=arguments, env=environ(**extra)
    )
    assert job.state == "COMPLETED", job.output
    return job


def trained(
    slurm: Slurm, script: str, size: tuple[str, ...], directory: Path, *command: str
) -> list[dict[str, Any]]:
    """What the bundled task computes in a job that nobody interrupts."""
    directory.mkdir()
    words, there = (*command, "--out", "out"), (f"--chdir={directory}",)
    job = completed(slurm, script, size, *words, options=there, **ONE_THREAD)
    assert "kill-on-bad-exit" not in job.output
    return history(directory / "out")


def test_one_launcher_per_node_computes_what_one_task_per_rank_does(slurm: Slurm, tmp_path: Path):
    tasks = trained(slurm, "tasks.sh", sized(2, 2, 2), tmp_path / "tasks", "--", *SHORT)
    warm = ("--preload", "torch", "--", *SHORT)
    nodes = trained(slurm, "nodes.sh", sized(2, 1, 2), tmp_path / "nodes", *warm)
    ours, theirs = ([line["loss"] for line in each if "loss" in line] for each in (nodes, tasks))
    assert len(theirs) == STEPS
    assert ours == pytest.approx(theirs, rel=1e-6)
    assert nodes[-1]["samples"] == tasks[-1]["samples"] == 4 * 2 * STEPS  # ranks, batch, steps


@pytest.mark.nightly  # half a minute: three attempts, and a whole run to compare with
def test_a_preemptible_job_goes_on_bit_for_bit(slurm: Slurm, tmp_path: Path):
    size = sized(2, 1, 1)
    long_enough = (*SHORT, "--steps", "400")  # to be signalled twice on a faster machine as well
    whole = trained(slurm, "tasks.sh", size, tmp_path / "whole", "--", *long_enough)
    log = tmp_path / "log"
    options, env = (f"--chdir={tmp_path}", f"--output={log}"), environ(**ONE_THREAD)
    script = DIRECTORY / "preemptible.sh"
    job = slurm.submit(script, *size, *options, arguments=long_enough, env=env)
    metrics = tmp_path / "runs" / job / "metrics.jsonl"

    def steps() -> int:
        return len(metrics.read_text().splitlines()) if metrics.exists() else 0

    until(lambda: steps() >= 10, "ten steps")
    slurm.run(["scancel", "--signal=USR1", job])
    start_again(slurm, job)
    until(lambda: slurm.job(job)["JobState"] == "RUNNING", "another attempt")
    before = steps()
    until(lambda: steps() >= before + 10, "ten more steps")
    slurm.run(["scontrol", "requeue", job])
    start_again(slurm, job)
    until(lambda: slurm.job(job)["JobState"] == "RUNNING", "another attempt")
    assert before < steps() < len(whole)
    assert slurm.wait_for(job, PATIENCE_S) == ("COMPLETED", 0, 0), log.read_text()
    assert "preempted by SIGUSR1 after step" in log.read_text()
    assert slurm.job(job)["Restarts"] == "2"
    assert history(metrics.parent) == whole


def test_a_bench_job_writes_one_file_for_all_nodes(slurm: Slurm, tmp_path: Path):
    quickly = ("--rounds", "1", "--warm-up", "0", "--seconds", "0.05")
    words = ("--arms", "unpinned,auto", "--workloads", "jitter", *quickly)
    there = (f"--chdir={tmp_path}",)
    job = completed(slurm, "bench.sh", sized(2, 1, 1), *words, options=there)
    found = results.read(str(tmp_path / f"bench-{job.job_id}.jsonl"))
    assert [node["host"] for node in found.nodes] == ["node0", "node1"]
    for arm in found.arms:
        assert [(rank.rank, rank.host) for rank in arm.ranks] == [(0, "node0"), (1, "node1")]
    samples = found.measured[0].series[""].values()
    assert {len(ranks) for rounds in samples for ranks in rounds} == {2}


def test_an_array_trains_every_seed_in_its_own_directory(slurm: Slurm, tmp_path: Path):
    words = (*TINY, "--steps", "3", "--log-every", "1", "--eval-every", "0")
    there = ("--array=3-4", f"--chdir={tmp_path}")
    job = completed(slurm, "array.sh", sized(1, 1, 1), *words, options=there)
    third, fourth = (history(tmp_path / "runs" / job.job_id / f"seed-{n}") for n in (3, 4))
    assert [line["step"] for line in third if "loss" in line] == [1, 2, 3]
    assert third != fourth


def test_a_container_without_slurm_knows_its_ranks(slurm: Slurm, tmp_path: Path):
    """A stand-in for apptainer hides the programs of Slurm, as an image does."""
    python = environ()["PATH"].partition(":")[0]
    (tmp_path / "apptainer").write_text(
        '#!/bin/sh\ntest "$1 $2 $3" = "exec --nv pytorch.sif" || exit 9\n'
        f'shift 3\nPATH={python} SLURM_CONF=/nowhere exec "$@"\n'
    )
    (tmp_path / "apptainer").chmod(0o755)
    path = f"{tmp_path}:{environ()['PATH']}"
    own = {"PATH": path, "REPORT_DIR": str(tmp_path)}
    completed(slurm, "container.sh", sized(2, 2, 2), str(REPORTER), **own)
    check(filed_reports(tmp_path), 4)


def test_an_environment_that_is_sent_to_the_nodes_is_the_one_of_the_ranks(
    slurm: Slurm, tmp_path: Path
):
    """Two nodes here have one /tmp, and would write to the same place."""
    venv.create(tmp_path / "venv", symlinks=True)
    (packages,) = (tmp_path / "venv/lib").glob("python*/site-packages")
    (packages / "ours.pth").write_text(f"{ROOT}\n")
    with tarfile.open(tmp_path / "env.tar", "w") as archive:
        archive.add(tmp_path / "venv", ".")
    shutil.rmtree(tmp_path / "venv")
    script = tmp_path / "where.py"
    script.write_text("import sys\nprint('ran in', sys.prefix)\n")
    words, there = ("env.tar", script.name), (f"--chdir={tmp_path}",)
    job = completed(slurm, "bcast.sh", sized(1, 2, 2), *words, options=there, PYTHONPATH="")
    place = Path(f"/tmp/environment-{job.job_id}")
    assert job.output.count(f"ran in {place}\n") == 2
    assert not place.exists()
    assert not place.with_suffix(".tar").exists()


@pytest.mark.parametrize(
    ("script", "size", "report"),
    [
        ("tasks.sh", sized(2, 2, 2), "task 3: Exited with exit code 7"),
        ("nodes.sh", sized(2, 1, 2), "spawnlaunch: rank 3 on node1 (pid "),
    ],
)
def test_a_rank_that_dies_ends_the_job_and_is_named(
    slurm: Slurm, script: str, size: tuple[str, ...], report: str
):
    mark = str(uuid.uuid4())
    with nothing_left_behind(mark):
        job = slurm.sbatch(DIRECTORY / script, *size, arguments=FAIL, env=environ(MARK=mark))
        assert job.state == "FAILED", job.output
        (line,) = [line for line in job.output.splitlines() if report in line]
        assert line.endswith(("exit code 7", "status 7; stopping rank 2"))
