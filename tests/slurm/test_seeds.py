"""Commands of documents that people follow, with only the launcher's word changed."""

import os
from pathlib import Path

import pytest

from tests.cluster.slurm import BatchJob, Slurm, require_slurm
from tests.slurm.scripts import DIRECTORY, environ
from tests.support.launching import REPORTER, clean_environ, filed_reports, run
from tests.support.truth import check

require_slurm()
pytestmark = pytest.mark.full


def reporter(directory: Path, name: str) -> None:
    """The script of a document, which here reports what it was given."""
    (directory / name).write_text(REPORTER.read_text())


def told(directory: Path, *names: str) -> list[tuple[str, ...]]:
    """Variables of every worker that reported there, in the order of the ranks."""
    return [tuple(w["environ"].get(name, "") for name in names) for w in filed_reports(directory)]


def completed(slurm: Slurm, script: str, directory: Path, *options: str) -> BatchJob:
    """A batch script of a document, whose commands end well."""
    env = environ(REPORT_DIR=str(directory))
    job = slurm.sbatch(f"#!/bin/bash\n{script}\n", f"--chdir={directory}", *options, env=env)
    assert job.state == "COMPLETED", job.output
    return job


@pytest.mark.parametrize(
    "command",
    ["python -m spawnlaunch --nproc_per_node 4", f"bash {DIRECTORY}/grid-engine.sh"],
    ids=["the command", "the script of this project"],
)
def test_whisper_on_four_gpus_of_a_grid_engine(command: str, tmp_path: Path) -> None:
    """With a host file as Grid Engine writes it (sge_pe(5))."""
    script = "training-seq2seq.py"
    arguments = (
        '--model_name_or_path="openai/whisper-medium" --task="transcribe"  \\\n\t'
        '--hub_model_id "wjbmattingly/xhosa-medium" --fp16 --do_train'
    )
    reporter(tmp_path, script)
    (tmp_path / "pe_hostfile").write_text(f"{os.uname().nodename} 4 gpu.q@node UNDEFINED\n")
    job = {"JOB_ID": "4711", "NSLOTS": "4", "NHOSTS": "1", "QUEUE": "gpu.q"}
    own = {"PE_HOSTFILE": "pe_hostfile", "XLA_FLAGS": "--xla_gpu_cuda_data_dir=/envs/lib"}
    variables = clean_environ(**environ(REPORT_DIR=str(tmp_path), **job, **own))
    done = run("bash", "-c", f"{command} {script} {arguments}", cwd=tmp_path, environ=variables)
    assert done.returncode == 0, done.stderr
    workers = filed_reports(tmp_path)
    assert [worker["rank"] for worker in workers] == [0, 1, 2, 3]
    words = arguments.replace('"', "").replace("\\\n", "").split()
    for worker in workers:
        assert worker["argv"] == [script, *words]
        assert worker["environ"]["WORLD_SIZE"] == "4"
        assert worker["environ"]["XLA_FLAGS"] == own["XLA_FLAGS"]


def test_a_launcher_or_a_task_for_each_device_on_a_node_of_lumi(
    slurm: Slurm, tmp_path: Path
) -> None:
    """The tasks have variables of the document's own."""
    reporter(tmp_path, "GPT-neo-IMDB-finetuning.py")
    launched, tasks = tmp_path / "launched", tmp_path / "tasks"
    launched.mkdir()
    tasks.mkdir()
    job = completed(
        slurm,
        f"REPORT_DIR={launched} srun --ntasks-per-node=1 --ntasks=1 python -m spawnlaunch "
        "--standalone --nnodes=1 --nproc-per-node=${SLURM_GPUS_PER_NODE} "
        "GPT-neo-IMDB-finetuning.py --model-name gpt-imdb-model --num-workers 7 --set-cpu-binds\n"
        "export MASTER_ADDR=$(hostname) MASTER_PORT=25900\n"
        "export WORLD_SIZE=$SLURM_NPROCS LOCAL_WORLD_SIZE=$SLURM_GPUS_PER_NODE\n"
        f"export REPORT_DIR={tasks}\n"
        'srun bash -c "export RANK=\\$SLURM_PROCID LOCAL_RANK=\\$SLURM_LOCALID; '
        f'python -m spawnlaunch {REPORTER}"',
        tmp_path,
        *("--nodes=1", "--gpus-per-node=8", "--ntasks-per-node=8"),
    )
    ranks = told(launched, "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    assert ranks == [(str(rank), str(rank), "8", "8") for rank in range(8)]
    assert {worker["argv"][-1] for worker in filed_reports(launched)} == {"--set-cpu-binds"}
    check(filed_reports(tasks), 8)
    assert set(told(tasks, "MASTER_PORT", "LOCAL_WORLD_SIZE")) == {("25900", "8")}
    assert "replaced what an outer launcher" not in job.output
