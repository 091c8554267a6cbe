"""A path that several launchers of a job share: none overwrites what another wrote.

Where they do not meet (--no-gang); where they do, one writes for all.
"""

import json
from pathlib import Path

import pytest

from tests.support.launching import SLURM_TASK, clean_environ, launch
from tests.support.matrix import mostly_full

TWO_TASKS = {**SLURM_TASK, "SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_STEP_NUM_TASKS": "4",
             "SLURM_GTIDS": "2,3"}  # fmt: skip


@pytest.mark.parametrize("by", mostly_full(["--result", "TORCHELASTIC_ERROR_FILE"]))
def test_each_node_writes_a_file_of_its_own(by: str, tmp_path: Path):
    path = tmp_path / "file.json"
    flags, program = (["--result", path], "true") if by == "--result" else ([], "false")
    environ = clean_environ(**({} if flags else {by: str(path)}))
    words = ("--nproc", 2, "--quiet", "--no-gang", "--master-addr", "127.0.0.1", *flags)
    first, second = (
        launch("--nnodes", 2, "--node-rank", n, *words, "--no-python", program, environ=environ)
        for n in range(2)
    )
    assert {first.returncode, second.returncode} == {0 if flags else 1}
    assert f"{by} {path}: each node" in first.stderr
    assert f"this one {path}.0" in first.stderr
    assert by not in second.stderr
    assert sorted(tmp_path.iterdir()) == [tmp_path / f"file.json.{n}" for n in range(2)]
    if flags:
        results = [json.loads(file.read_text()) for file in sorted(tmp_path.iterdir())]
        assert [[one["rank"] for one in each["ranks"]] for each in results] == [[0, 1], [2, 3]]


NODE = ("--nnodes", 2, "--node-rank", 1, "--master-addr", "node0", "--nproc")
TASK = ("--redirects", 3)
SHARED = "several ranks the same directory"


@pytest.mark.parametrize(
    ("flags", "template", "is_shared"),
    [
        *(((*NODE, 2), each, True) for each in ("{local_rank}", "logs-{restart}", "{run}/{host}")),
        *(((*NODE, 2), each, False) for each in ("{rank}", "{node_rank}/{local_rank}")),
        ((*NODE, 2), "{host}-{local_rank}", False),
        ((*NODE, 1), "{local_rank}", True),
        (("--nproc", 1), "logs", False),
        *((TASK, each, True) for each in ("{host}", "{node_rank}", "{local_rank}")),
    ],
)
def test_a_directory_that_several_ranks_would_share_is_refused(flags, template, is_shared):
    environ = clean_environ(**(TWO_TASKS if flags == TASK else {}))
    words = (*flags, "--log-dir", template, "--explain", "--no-python", "true")
    done = launch(*words, environ=environ)
    assert done.returncode == (2 if is_shared else 0), done.stderr
    assert (SHARED in done.stderr) == ("put {rank} into it" in done.stderr) == is_shared
