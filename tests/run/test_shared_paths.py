"""A path that several launchers of a job share: none overwrites what another wrote.

Where they do not meet (--no-gang); where they do, one writes for all.
"""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.launching import LAUNCHER, SLURM_TASK, clean_environ, explain, launch, start
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port

TWO_TASKS = {**SLURM_TASK, "SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_STEP_NUM_TASKS": "4",
             "SLURM_GTIDS": "2,3"}  # fmt: skip


def on_two_nodes(*words: object, **environ: str) -> Sequence[subprocess.CompletedProcess[str]]:
    """What both launchers of a job of two nodes come to; both are on this machine."""
    port = free_port()
    running = [
        start(
            *LAUNCHER, "--nnodes", "2", "--node-rank", node, "--nproc", "2", "--quiet", "--no-gang",
            "--master-addr", "127.0.0.1", "--master-port", port, *words,
            environ=clean_environ(**environ), stderr=subprocess.PIPE,
        )
        for node in range(2)
    ]  # fmt: skip
    said = [each.communicate(timeout=PATIENCE_S) for each in running]
    return [
        subprocess.CompletedProcess(each.args, each.returncode, *streams)
        for each, streams in zip(running, said, strict=True)
    ]


def test_each_node_writes_a_result_of_its_own(tmp_path: Path):
    path = tmp_path / "result.json"
    first, second = on_two_nodes("--result", path, "--no-python", "true")
    assert (first.returncode, second.returncode) == (0, 0)
    assert f"this one {path}.0" in first.stderr
    assert "--result" not in second.stderr
    results = [json.loads(file.read_text()) for file in sorted(tmp_path.iterdir())]
    assert [[rank["rank"] for rank in result["ranks"]] for result in results] == [[0, 1], [2, 3]]


def test_each_node_writes_an_error_file_of_its_own(tmp_path: Path):
    path = tmp_path / "error.json"
    first, _ = on_two_nodes("--no-python", "false", TORCHELASTIC_ERROR_FILE=str(path))
    assert f"TORCHELASTIC_ERROR_FILE {path}: each node" in first.stderr
    assert [file.name for file in sorted(tmp_path.iterdir())] == ["error.json.0", "error.json.1"]


@pytest.mark.parametrize("template", ["{local_rank}", "logs-{restart}", "{run}/{local_rank}"])
def test_a_directory_that_ranks_of_two_nodes_would_share_is_refused_on_both(
    template: str, tmp_path: Path
):
    for done in on_two_nodes("--log-dir", tmp_path / template, "--no-python", "true"):
        assert done.returncode == 2
        assert "several ranks the same directory" in done.stderr
        assert "put {rank} into it" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_so_it_is_where_each_node_has_one_rank():
    by_hand = ("--nnodes", 2, "--node-rank", 0, "--master-addr", "node0", "--nproc", 1)
    done = launch(*by_hand, "--log-dir", "{local_rank}", "--explain", "--no-python", "true")
    assert done.returncode == 2
    assert "several ranks the same directory" in done.stderr
    alone = launch("--nproc", 1, "--log-dir", "logs", "--explain", "--no-python", "true")
    assert alone.returncode == 0


@pytest.mark.parametrize("template", ["{rank}", "{node_rank}/{local_rank}", "{host}-{local_rank}"])
def test_a_directory_with_the_rank_or_the_node_in_its_name_is_taken(template: str):
    by_hand = ("--nnodes", 2, "--node-rank", 1, "--master-addr", "node0", "--nproc", 2)
    assert len(explain(*by_hand, "--log-dir", template)["workers"]) == 2


@pytest.mark.parametrize("template", ["{host}", "{node_rank}", "{local_rank}"])
def test_the_tasks_of_a_step_share_none(template: str):
    words = ("--redirects", 3, "--log-dir", template, "--explain", "--no-python", "true")
    done = launch(*words, environ=clean_environ(**TWO_TASKS))
    assert done.returncode == 2
    assert "put {rank} into it" in done.stderr


def test_a_task_cannot_show_what_it_keeps_and_says_what_to_type(tmp_path: Path):
    script = ("--no-python", "sh", "-c", "echo out; echo err >&2")
    place = ("--quiet", "--log-dir", tmp_path / "{rank}")
    done = launch(*place, *script, environ=clean_environ(**SLURM_TASK))
    assert done.returncode == 2
    assert "type --redirects 3 as well" in done.stderr
    assert list(tmp_path.iterdir()) == []
    done = launch("--redirects", 3, *place, *script, environ=clean_environ(**SLURM_TASK))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "2/stdout.log").read_text() == "out\n"
    assert (tmp_path / "2/stderr.log").read_text() == "err\n"


def test_a_flag_that_needs_a_launcher_above_ends_in_the_line_with_all_flags():
    done = launch(
        "--result", "a b.json", "--no-python", "true", environ=clean_environ(**SLURM_TASK)
    )
    assert done.stderr.endswith(
        "one launcher per node: srun --nodes=2 --ntasks=2 --ntasks-per-node=1 "
        f"{' '.join(LAUNCHER[:3])} --nproc=1 --no-prefix '--result=a b.json' --no-python true\n"
    )
