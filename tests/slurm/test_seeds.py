"""A command of a document that people follow, with only the launcher's word changed."""

import os
from pathlib import Path

import pytest

from tests.slurm.scripts import DIRECTORY, environ
from tests.support.launching import REPORTER, clean_environ, filed_reports, run

pytestmark = pytest.mark.full


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
    (tmp_path / script).write_text(REPORTER.read_text())  # reports what it was given
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
