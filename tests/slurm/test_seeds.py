"""Commands of five documents that people follow, with only the launcher's word changed."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests import machines
from tests.cluster.slurm import Slurm, require_slurm
from tests.machines.tree import build
from tests.slurm.scripts import DIRECTORY, environ
from tests.support.launching import (
    LAUNCHER,
    REPORTER,
    clean_environ,
    explain,
    filed_reports,
    launch,
    run,
)
from tests.world.truth import check

require_slurm()


def shell(
    script: str | Path, *arguments: str, cwd: Path, **extra: str
) -> subprocess.CompletedProcess[str]:
    """Run a bash script in `cwd`, where `spawnlaunch`'s Python is the first on the PATH."""
    command = ["bash", script] if isinstance(script, Path) else ["bash", "-c", script]
    variables = clean_environ(**environ(REPORT_DIR=str(cwd), **extra))
    return run(*command, *arguments, cwd=cwd, environ=variables)


def reporter(directory: Path, name: str) -> Path:
    """The script of a document, which here reports what it was given."""
    script = directory / name
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(REPORTER.read_text())
    return script


def told(directory: Path, *names: str) -> list[tuple[str, ...]]:
    """Variables of every worker that reported there, in the order of the ranks."""
    return [tuple(w["environ"].get(name, "") for name in names) for w in filed_reports(directory)]


class TestWhisperOnGridEngine:
    """Fine-tuning Whisper on four GPUs of one node of a Grid Engine."""

    ARGUMENTS = (
        *('--model_name_or_path="openai/whisper-medium"', '--language="swahili"'),
        *('--dataset_name="wjbmattingly/xhosa_merged_audio"', '--task="transcribe"'),
        *('--train_split_name="train"', '--eval_split_name="validation"', '--max_steps="5000"'),
        *('--output_dir="./whisper-xhosa-medium"', '--per_device_train_batch_size="16"'),
        *('--per_device_eval_batch_size="16"', '--logging_steps="25"', '--learning_rate="1e-5"'),
        *('--warmup_steps="500"', '--eval_strategy="steps"', '--eval_steps="500"'),
        *('--save_strategy="steps"', '--save_steps="500"', '--generation_max_length="225"'),
        *('--preprocessing_num_workers="16"', '--max_duration_in_seconds="30"'),
        *('--text_column_name="transcription"', '--freeze_feature_encoder="False"'),
        *("--push_to_hub", '--hub_model_id "wjbmattingly/xhosa-medium"', "--hub_private_repo"),
        *("--gradient_checkpointing", "--fp16", "--overwrite_output_dir", "--do_train"),
        *("--do_eval", "--predict_with_generate"),
    )
    JOB: Mapping[str, str] = {"JOB_ID": "4711", "NSLOTS": "4", "NHOSTS": "1", "QUEUE": "gpu.q"}

    def run(self, directory: Path, command: str) -> None:
        """Run it with a host file as Grid Engine writes it (sge_pe(5))."""
        reporter(directory, "training-seq2seq.py")
        hosts = directory / "pe_hostfile"
        hosts.write_text(f"{os.uname().nodename} 4 gpu.q@node UNDEFINED\n")
        own = {"PE_HOSTFILE": str(hosts), "XLA_FLAGS": "--xla_gpu_cuda_data_dir=/envs/lib"}
        done = shell(command, cwd=directory, **self.JOB, **own)
        assert done.returncode == 0, done.stderr

    def check(self, directory: Path) -> None:
        """Each of four ranks has all the arguments, without the quotes, and the environment."""
        words = [word.replace('"', "") for line in self.ARGUMENTS for word in line.split()]
        assert len(words) == 32
        workers = filed_reports(directory)
        assert [worker["rank"] for worker in workers] == [0, 1, 2, 3]
        for worker in workers:
            assert worker["argv"] == ["training-seq2seq.py", *words]
            assert worker["environ"]["WORLD_SIZE"] == "4"
            assert worker["environ"]["XLA_FLAGS"] == "--xla_gpu_cuda_data_dir=/envs/lib"

    def test_the_command(self, tmp_path: Path):
        new = "python -m spawnlaunch --nproc_per_node 4 training-seq2seq.py "
        self.run(tmp_path, new + " \\\n\t".join(self.ARGUMENTS))
        self.check(tmp_path)

    def test_the_script_of_this_project(self, tmp_path: Path):
        script = DIRECTORY / "grid-engine.sh"
        self.run(tmp_path, f"bash {script} training-seq2seq.py {' '.join(self.ARGUMENTS)}")
        self.check(tmp_path)


class TestLumiExercise:
    """A Hugging Face script on the eight devices of a node of LUMI-G."""

    # What the exercise's own code binds each local rank to.
    IN_SCRIPT: Mapping[int, range] = {
        0: range(49, 56),
        1: range(57, 64),
        2: range(17, 24),
        3: range(25, 32),
        4: range(1, 8),
        5: range(9, 16),
        6: range(33, 40),
        7: range(41, 48),
    }
    WITH_RANKS = (
        "export MASTER_ADDR=$(hostname) MASTER_PORT=25900\n"
        "export WORLD_SIZE=$SLURM_NPROCS LOCAL_WORLD_SIZE=$SLURM_GPUS_PER_NODE\n"
        'srun bash -c "export RANK=\\$SLURM_PROCID LOCAL_RANK=\\$SLURM_LOCALID'
    )

    def explained(self, root: Path, *flags: str) -> list[dict[str, Any]]:
        """The plan where Slurm keeps the first core of each L3 group, as on LUMI."""
        given = ",".join(f"{first}-{first + 6}" for first in range(1, 64, 8))
        build(root, machines.LUMI)
        found = explain("--sysfs-root", root, "--allowed-cpus", given, *flags)
        return found["workers"]

    def test_a_worker_that_binds_itself_finds_itself_there_already(self, tmp_path: Path):
        flags = ("--standalone", "--nnodes=1", "--nproc-per-node=8")
        workers = self.explained(tmp_path, *flags)
        for worker in workers:
            first, last = worker["cpus"].split("-")
            assert range(int(first), int(last) + 1) == self.IN_SCRIPT[worker["local_rank"]]
        assert len(workers) == len(self.IN_SCRIPT)

    def test_one_launcher_per_node(self, slurm: Slurm, tmp_path: Path):
        script = reporter(tmp_path, "GPT-neo-IMDB-finetuning.py")
        command = (
            "#!/bin/bash\nsrun python -m spawnlaunch --standalone --nnodes=1 "
            f"--nproc-per-node=${{SLURM_GPUS_PER_NODE}} {script} --model-name gpt-imdb-model "
            "--num-workers 7 --set-cpu-binds\n"
        )
        job = slurm.sbatch(
            command,
            *("--nodes=1", "--ntasks-per-node=1", "--gpus-per-node=8"),
            env=environ(REPORT_DIR=str(tmp_path)),
        )
        assert job.state == "COMPLETED", job.output
        ranks = told(tmp_path, "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
        assert ranks == [(str(rank), str(rank), "8", "8") for rank in range(8)]
        assert {w["argv"][-1] for w in filed_reports(tmp_path)} == {"--set-cpu-binds"}

    @pytest.mark.full
    def test_one_task_per_device_with_variables_of_ones_own(self, slurm: Slurm, tmp_path: Path):
        job = slurm.sbatch(
            f'#!/bin/bash\n{self.WITH_RANKS}; python -m spawnlaunch {REPORTER}"\n',
            *("--nodes=1", "--ntasks-per-node=8", "--gpus-per-node=8"),
            env=environ(REPORT_DIR=str(tmp_path)),
        )
        assert job.state == "COMPLETED", job.output
        assert "replaced what an outer launcher" not in job.output
        check(filed_reports(tmp_path), 8)
        assert set(told(tmp_path, "MASTER_PORT", "LOCAL_WORLD_SIZE")) == {("25900", "8")}


class TestDistributedTrainingGuide:
    """One node, all its GPUs, files for the output and for the first error."""

    TYPED = (*("--standalone", "--nnodes", "1"), *("--redirects", "3", "--log-dir", "../logs"))

    def test_gpu_means_as_many_workers_as_there_are_gpus(self, tmp_path: Path):
        build(tmp_path, machines.HGX_H100)
        found = explain("--sysfs-root", tmp_path, *self.TYPED, "--nproc-per-node", "gpu")
        assert len(found["workers"]) == 8

    @pytest.mark.full
    def test_every_rank_writes_files_and_the_first_error_is_recorded(self, tmp_path: Path):
        chapter = tmp_path / "02-multi-gpu"
        chapter.mkdir()
        (chapter / "train_llm.py").write_text(
            "import os, sys, time\n"
            "from torch.distributed.elastic.multiprocessing.errors import record\n"
            "@record\n"
            "def main():\n"
            "    print('rank', os.environ['RANK'], 'omp', os.environ['OMP_NUM_THREADS'])\n"
            "    if os.environ['RANK'] == '0':\n"
            "        open('printed', 'w').close()\n"
            "    while os.environ['RANK'] == '0' or not os.path.exists('printed'):\n"
            "        time.sleep(0.1)\n"
            "    raise RuntimeError('out of memory')\n"
            "main()\n"
        )
        done = launch(
            *(*self.TYPED, "--nproc-per-node", "2", "train_llm.py", "--batch-size", "64"),
            cwd=chapter,
            environ=clean_environ(TORCHELASTIC_ERROR_FILE="../error.json", OMP_NUM_THREADS="1"),
        )
        assert done.returncode == 1
        outputs = sorted((tmp_path / "logs").glob("*/attempt_0/*/stdout.log"))
        assert [file.read_text() for file in outputs] == ["rank 0 omp 1\n", "rank 1 omp 1\n"]
        error = json.loads((tmp_path / "error.json").read_text())
        assert "out of memory" in error["message"]["message"]


class TestSpeechBrain:
    """torch.distributed.launch on two machines, by hand and under Slurm, and its argument."""

    RECIPE = ("experiment.py", "hyperparams.yaml", "--distributed_backend=nccl")

    def test_two_machines_by_hand(self, slurm: Slurm, tmp_path: Path):
        """srun is the way onto the machines; to the launchers it looks like a login on each."""
        reporter(tmp_path, "experiment.py")
        started = [
            slurm.popen(
                [
                    *("srun", "--nodes=1", "--ntasks=1", f"--nodelist=node{node}"),
                    *("env", "-u", "SLURM_JOB_ID", "-u", "SLURM_STEP_ID", *LAUNCHER),
                    *("--nproc_per_node=2", "--nnodes=2", f"--node_rank={node}"),
                    *("--master_addr", "node0", "--master_port", "5555", *self.RECIPE),
                ],
                cwd=tmp_path,
                env={"REPORT_DIR": str(tmp_path)},
            )
            for node in (0, 1)
        ]
        assert [process.wait(100) for process in started] == [0, 0]
        check(filed_reports(tmp_path), 4)
        assert set(told(tmp_path, "MASTER_PORT")) == {("5555",)}

    def test_a_batch_script_that_starts_a_script_on_every_node(self, slurm: Slurm, tmp_path: Path):
        reporter(tmp_path, "train.py")
        (tmp_path / "srun_script.sh").write_text(
            "#!/bin/bash\n"
            "cd ${SLURM_SUBMIT_DIR}\n"
            "LISTNODES=`scontrol show hostname $SLURM_JOB_NODELIST`\n"
            'MASTER=`echo $LISTNODES | cut -d" " -f1`\n'
            "python -m spawnlaunch --nproc_per_node=4 --nnodes=${SLURM_JOB_NUM_NODES} "
            "--node_rank=${SLURM_NODEID} --master_addr=${MASTER} --master_port=5555 "
            "train.py hparams/myrecipe.yaml\n"
        )
        (tmp_path / "srun_script.sh").chmod(0o755)
        (tmp_path / "sbatch.sh").write_text(
            "#!/bin/bash\n"
            "#SBATCH --nodes=2\n"
            "#SBATCH --ntasks-per-node=1\n"
            "#SBATCH --gres=gpu:4\n"
            "#SBATCH --cpus-per-task=8\n"
            "cd ${SLURM_SUBMIT_DIR}\n"
            "srun srun_script.sh\n"
        )
        submitted = slurm.run(
            ["sbatch", "--wait", "--output=log", "sbatch.sh"],
            cwd=tmp_path,
            env=environ(REPORT_DIR=str(tmp_path)),
        )
        assert submitted.returncode == 0, (tmp_path / "log").read_text()
        check(filed_reports(tmp_path), 8)
        assert set(told(tmp_path, "MASTER_ADDR", "MASTER_PORT")) == {("node0", "5555")}

    @pytest.mark.parametrize(
        ("spelling", "word"), [("hyphen", "--local-rank"), ("underscore", "--local_rank")]
    )
    def test_a_recipe_that_wants_its_local_rank_as_an_argument(
        self, slurm: Slurm, tmp_path: Path, spelling: str, word: str
    ):
        step = ["srun", "-N2", "-n4", *LAUNCHER, "--local-rank-arg", spelling, REPORTER, "a.yaml"]
        done = slurm.run(step, env={"REPORT_DIR": str(tmp_path)})
        assert done.returncode == 0, done.stderr
        workers = filed_reports(tmp_path)
        assert len(workers) == 4
        for worker in workers:
            local_rank = worker["environ"]["LOCAL_RANK"]
            assert worker["argv"][1:] == [f"{word}={local_rank}", "a.yaml"]

    def test_two_gpus_by_their_numbers(self, tmp_path: Path):
        build(tmp_path, machines.DGX_A100)
        found = explain(
            *("--sysfs-root", tmp_path, "--nproc_per_node", "2"), CUDA_VISIBLE_DEVICES="1,5"
        )
        ranks = [(w["env"]["LOCAL_RANK"], w["device"]["index"]) for w in found["workers"]]
        assert ranks == [("0", 1), ("1", 5)]


def test_classification_with_gpt2_on_eight_devices_by_their_numbers(tmp_path: Path):
    reporter(tmp_path, "script.py")
    arguments = ["--model", "gpt2-medium", "--epochs", "4", "--batch_size", "32"]
    command = (
        "CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 python -m spawnlaunch --nproc_per_node=8 script.py "
    )
    done = shell(command + " ".join(arguments), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    workers = filed_reports(tmp_path)
    assert [worker["environ"]["LOCAL_RANK"] for worker in workers] == [str(n) for n in range(8)]
    assert {worker["environ"]["CUDA_VISIBLE_DEVICES"] for worker in workers} == {"0,1,2,3,4,5,6,7"}
    assert all(worker["argv"] == ["script.py", *arguments] for worker in workers)
    assert {worker["environ"]["PATH"].partition(":")[0] for worker in workers} == {
        str(Path(sys.executable).parent)
    }
