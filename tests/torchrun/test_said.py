"""What a torchrun user is told where something is not as there, and what then happens."""

import socket
import sys
from pathlib import Path

import pytest

from spawnlaunch.cli import torchrun
from spawnlaunch.cli.flags import Program, Request
from tests.support.launching import LAUNCHER, clean_environ, explain, launch, run
from tests.support.slurm_variables import SHELL_OF_TWO_NODES

OLD = (sys.executable, "-m", "spawnlaunch.distributed_launch", "--prefix=never")
DECLARES = (
    'import argparse\np = argparse.ArgumentParser()\np.add_argument("{}", type=int, default=0)\n'
)
PRINTS = "print(p.parse_args().local_rank)\n"
LEAVES = """
import os, subprocess
loop = "trap '' TERM; while :; do sleep 1; done"
if os.environ["RANK"] == "0": subprocess.Popen(["sh", "-c", loop])
"""
POD = {"WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "23456"}


def script(directory: Path, text: str) -> Path:
    file = directory / "script.py"
    file.write_text(text)
    return file


@pytest.mark.full
@pytest.mark.parametrize(
    ("command", "status", "name", "kind"),
    [
        (LAUNCHER, 0, "--local_rank", "underscore"),
        (LAUNCHER, 0, "--local-rank", "hyphen"),
        (OLD, 2, "--local_rank", "underscore"),  # which adds the other spelling
    ],
)
def test_a_script_that_declares_what_it_is_not_given_is_told_what_to_type(
    command, status, name, kind, tmp_path
):
    words = (*command, "--quiet", "--nproc-per-node", 2)
    file = script(tmp_path, DECLARES.format(name) + PRINTS)
    done = run(*words, file)
    assert (done.returncode, done.stdout.split()) == (status, [] if status else ["0", "0"])
    assert f"use --local-rank-arg {kind}\n" in done.stderr
    done = run(*words, "--local-rank-arg", kind, file)
    assert (sorted(done.stdout.split()), done.stderr) == (["0", "1"], "")


def test_whoever_names_no_script_for_its_local_rank_is_told_the_line_of_the_bundled_loop():
    done = run(*OLD, "--nproc_per_node=2")
    assert done.returncode == 2
    assert "no script is named" in done.stderr
    assert done.stderr.endswith("run python -m spawnlaunch --nproc 2\n")


def test_whoever_reads_LOCAL_RANK_is_not_told_of_an_argument():
    text = DECLARES.format("--local_rank") + "import os; os.environ['LOCAL_RANK']"
    request = Request(program=Program("script", "x.py", ()), python="python")
    assert list(torchrun.advice_on_local_rank(request, text)) == []
    assert list(torchrun.advice_on_local_rank(request, text.replace("LOCAL_RANK", "")))


@pytest.mark.full
@pytest.mark.parametrize(
    ("flags", "environ", "said"),
    [
        (("--max-restarts", 3), {}, "use --no-restart-status 2\n"),
        (("--log-dir", "/dev/null", "--redirects", 3, "--tee", 1), {}, "and all is shown\n"),
        (("--rdzv-conf", "'join_timeout=60,a=1,b=2'"), {}, "--rdzv-conf a, b:"),
        (("--duplicate-stdout-filters", "loss"), {}, "grep"),
        ((), {"TORCHELASTIC_ENABLE_FILE_TIMER": "1"}, "--hang-timeout"),
        ((), {"MASTER_PORT": "{busy}"}, "MASTER_PORT {busy} is in use"),
        (("--nproc-per-node", 2), {**POD, "MASTER_ADDR": "localhost", "RANK": "1"},
         "; unset RANK WORLD_SIZE;"),
    ],
)  # fmt: skip
def test_what_has_another_effect_than_under_torchrun_is_said(flags, environ, said):
    with socket.socket() as listener:
        listener.bind(("", 0))
        listener.listen()
        busy = str(listener.getsockname()[1])
        environ = {name: value.format(busy=busy) for name, value in environ.items()}
        words = ("--quiet", *flags, "--no-python", "sh", "-c", "exit 75")
        done = launch(*words, environ=clean_environ(**environ))
    assert done.returncode == 75  # which is not restarted
    assert said.format(busy=busy) in done.stderr


@pytest.mark.full
def test_what_a_worker_leaves_is_told_to_end_and_then_killed(tmp_path):
    done = launch("--nproc", 2, "--quiet", "--grace", 2, script(tmp_path, LEAVES))
    assert done.returncode == 0
    for said in ("and left pid ", "gets SIGTERM: 2 s are", "killing pid "):
        assert said in done.stderr


@pytest.mark.full
def test_two_runs_of_one_id_keep_their_files_apart(tmp_path):
    words = ("--log-dir", tmp_path, "--rdzv-id", "exp", "--redirects", 1, "--quiet", "--no-python")
    for text in ("first", "second"):
        assert launch(*words, "echo", text).stderr == ""
    kept = {
        file.relative_to(tmp_path).parts[0]: file.read_text() for file in tmp_path.rglob("*.log")
    }
    assert all(name.startswith("exp-") for name in kept)
    assert sorted(kept.values()) == ["first\n", "second\n"]


def test_the_only_pod_of_a_job_is_no_outer_launcher():
    pod = {**POD, "RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost"}
    assert explain("--nproc", 2, "--standalone", **pod)["warnings"] == []


@pytest.mark.full
@pytest.mark.parametrize("rank", ["0", "1"])
def test_ranks_in_the_environment_are_taken_for_a_pods_which_each_launcher_says(rank):
    warnings = explain("--nproc", 2, RANK=rank, **POD)["warnings"]
    (said,) = (line for line in warnings if "pod's" in line)
    assert f"RANK={rank} WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=23456 are taken" in said
    assert f"node {rank} of 2, and waits for the others" in said
    assert said.endswith("unset RANK WORLD_SIZE, or use --standalone")


@pytest.mark.full
@pytest.mark.parametrize(
    ("typed", "environ"),
    [
        (("--nproc_per_node=2", "--prefix=never"), {"PET_NPROC_PER_NODE": "many"}),
        (("--prefix=never",), {"PET_NPROC_PER_NODE": "2"}),
    ],
)
def test_a_line_to_type_says_all_that_was_typed_and_exported(typed, environ, tmp_path):
    """Also where it is not typed where the variables are."""
    file = script(tmp_path, DECLARES.format("--local-rank") + PRINTS)
    for command, ranks in ((OLD[:-1], ["0", "1"]), (LAUNCHER[:-1], ["0", "0"])):
        done = run(*command, *typed, file, environ=clean_environ(**SHELL_OF_TWO_NODES, **environ))
        assert done.returncode == 2
        line = done.stderr.rpartition("for this machine alone: ")[2]
        assert sorted(run("sh", "-c", line).stdout.split()) == ranks


@pytest.mark.full
@pytest.mark.parametrize(
    ("flags", "said"),
    [(["--prefix", "always"], "[0] x\n"), (["--prefix", "never"], "x\n"), ([], "x\n")],
)
def test_a_prefix_always_never_or_where_there_are_several_ranks(flags, said):
    assert run(*LAUNCHER[:-1], "--quiet", *flags, "--no-python", "echo", "x").stdout == said


@pytest.mark.parametrize(
    ("word", "read"),
    [
        ("-r3", ("-r", "=", "3")),
        ("-t0:3,1:1", ("-t", "=", "0:3,1:1")),
        ("--nproc_per=2", ("--nproc-per-node", "=", "2")),
        ("--rdzv-b", ("--rdzv-backend", "", "")),
        ("--max-r", ("--max-restarts", "", "")),
        ("--master", ("--master", "", "")),  # -addr, or -port?
    ],
)
def test_names_are_read_joined_and_cut_short(word, read):
    assert torchrun.split(word) == read
