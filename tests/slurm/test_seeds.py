"""Commands of documents that people follow, with only the launcher's word changed."""

import json
import os
import sys
from pathlib import Path

import pytest

from tests.cluster.slurm import BatchJob, Slurm, require_slurm
from tests.slurm.scripts import DIRECTORY, environ
from tests.support.launching import REPORTER, clean_environ, filed_reports, launch, run
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


ONE_NODE_OF_LUMI = ("--nodes=1", "--gpus-per-node=8")


def test_a_launcher_on_a_node_of_lumi(slurm: Slurm, tmp_path: Path) -> None:
    reporter(tmp_path, "GPT-neo-IMDB-finetuning.py")
    completed(
        slurm,
        "srun python -m spawnlaunch --standalone --nnodes=1 "
        "--nproc-per-node=${SLURM_GPUS_PER_NODE} GPT-neo-IMDB-finetuning.py "
        "--model-name gpt-imdb-model --num-workers 7 --set-cpu-binds",
        tmp_path,
        *(*ONE_NODE_OF_LUMI, "--ntasks-per-node=1"),
    )
    ranks = told(tmp_path, "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    assert ranks == [(str(rank), str(rank), "8", "8") for rank in range(8)]
    assert {worker["argv"][-1] for worker in filed_reports(tmp_path)} == {"--set-cpu-binds"}


def test_a_task_for_each_device_of_a_node_of_lumi_with_variables_of_ones_own(
    slurm: Slurm, tmp_path: Path
) -> None:
    job = completed(
        slurm,
        "export MASTER_ADDR=$(hostname) MASTER_PORT=25900\n"
        "export WORLD_SIZE=$SLURM_NPROCS LOCAL_WORLD_SIZE=$SLURM_GPUS_PER_NODE\n"
        'srun bash -c "export RANK=\\$SLURM_PROCID LOCAL_RANK=\\$SLURM_LOCALID; '
        f'python -m spawnlaunch {REPORTER}"',
        tmp_path,
        *(*ONE_NODE_OF_LUMI, "--ntasks-per-node=8"),
    )
    assert "replaced what an outer launcher" not in job.output
    check(filed_reports(tmp_path), 8)
    assert set(told(tmp_path, "MASTER_PORT", "LOCAL_WORLD_SIZE")) == {("25900", "8")}


def test_files_for_the_output_and_the_first_error_of_a_chapter(tmp_path: Path) -> None:
    chapter = tmp_path / "02-multi-gpu"
    chapter.mkdir()
    (chapter / "train_llm.py").write_text(
        "import os, time\n"
        "from torch.distributed.elastic.multiprocessing.errors import record\n"
        "@record\n"
        "def main():\n"
        "    print('rank', os.environ['RANK'], 'omp', os.environ['OMP_NUM_THREADS'], flush=True)\n"
        "    open(os.environ['RANK'], 'w').close()\n"
        "    while not os.path.exists('0') or not os.path.exists('1'):\n"
        "        time.sleep(0.01)\n"
        "    raise RuntimeError('out of memory')\n"
        "main()\n"
    )
    done = launch(
        *("--standalone", "--nnodes", 1, "--redirects", 3, "--log-dir", "../logs"),
        *("--nproc-per-node", 2, "train_llm.py", "--batch-size", 64),
        cwd=chapter,
        environ=clean_environ(TORCHELASTIC_ERROR_FILE="../error.json", OMP_NUM_THREADS="1"),
    )
    assert done.returncode == 1
    outputs = sorted((tmp_path / "logs").glob("*/attempt_0/*/stdout.log"))
    assert [file.read_text() for file in outputs] == ["rank 0 omp 1\n", "rank 1 omp 1\n"]
    error = json.loads((tmp_path / "error.json").read_text())
    assert "out of memory" in error["message"]["message"]


def test_a_toolkit_on_two_machines_by_hand(slurm: Slurm, tmp_path: Path) -> None:
    """srun is the way onto the machines; to the launchers it looks like a login on each."""
    reporter(tmp_path, "experiment.py")
    started = [
        slurm.popen(
            [
                *("srun", "--nodes=1", "--ntasks=1", f"--nodelist=node{node}"),
                *("env", "-u", "SLURM_JOB_ID", "-u", "SLURM_STEP_ID"),
                *(sys.executable, "-m", "spawnlaunch"),
                *("--nproc_per_node=2", "--nnodes=2", f"--node_rank={node}"),
                *("--master_addr", "node0", "--master_port", "5555", "experiment.py"),
                *("hyperparams.yaml", "--distributed_backend=nccl"),
            ],
            cwd=tmp_path,
            env={"REPORT_DIR": str(tmp_path)},
        )
        for node in (0, 1)
    ]
    assert [process.wait(100) for process in started] == [0, 0]
    check(filed_reports(tmp_path), 4)
    assert set(told(tmp_path, "MASTER_PORT")) == {("5555",)}


def test_a_toolkits_batch_script_that_starts_a_script_on_every_node(
    slurm: Slurm, tmp_path: Path
) -> None:
    reporter(tmp_path, "train.py")
    (tmp_path / "srun_script.sh").write_text(
        "#!/bin/bash\n"
        "cd ${SLURM_SUBMIT_DIR}\n"
        "LISTNODES=`scontrol show hostname $SLURM_JOB_NODELIST`\n"
        'MASTER=`echo $LISTNODES | cut -d" " -f1`\n'
        "python -m spawnlaunch --nproc_per_node=4 --nnodes=${SLURM_JOB_NUM_NODES} "
        "--node_rank=${SLURM_NODEID} --master_addr=${MASTER} --master_port=5555 "
        f"{tmp_path}/train.py hparams/myrecipe.yaml\n"
    )
    (tmp_path / "srun_script.sh").chmod(0o755)
    script = (
        "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gres=gpu:4\n"
        f"#SBATCH --cpus-per-task=8\nsrun {tmp_path}/srun_script.sh"
    )
    completed(slurm, script, tmp_path)
    check(filed_reports(tmp_path), 8)
    assert set(told(tmp_path, "MASTER_ADDR", "MASTER_PORT")) == {("node0", "5555")}
