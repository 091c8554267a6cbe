"""What a torchrun user is told where something is not as there, and what then happens."""

import json
import os
import pty
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from spawnlaunch.flags import Program, Request
from spawnlaunch.torchrun import local_rank, names
from tests.dropin.lines import SHELL_OF_TWO_NODES
from tests.machines import AURORA, LUMI
from tests.machines.tree import build
from tests.support.launching import (
    LAUNCHER,
    REPORTER,
    ROOT,
    clean_environ,
    explain,
    launch,
    reports,
    run,
    start,
)
from tests.support.patience import PATIENCE_S

LAUNCH = (sys.executable, "-m", "spawnlaunch.distributed_launch")
DECLARES = (
    'import argparse\np = argparse.ArgumentParser()\np.add_argument("{}", type=int, default=0)\n'
)
PRINTS = "print(p.parse_args().local_rank)\n"
LEAVES = (
    "import os, subprocess\nif os.environ['RANK'] == '0': subprocess.Popen(['sh', '-c', {!r}])\n"
)


def script(directory: Path, text: str) -> Path:
    file = directory / "script.py"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("name", "kind"), [("--local_rank", "underscore"), ("--local-rank", "hyphen")]
)
def test_a_script_that_expects_its_local_rank_and_is_given_none_is_named(name, kind, tmp_path):
    file = script(tmp_path, DECLARES.format(name) + PRINTS)
    done = launch("--nproc", 2, "--quiet", file)
    assert done.stdout.split() == ["0", "0"]
    assert f"declares {name}" in done.stderr
    assert done.stderr.strip().endswith(f"type --local-rank-arg {kind}")
    done = launch("--nproc", 2, "--quiet", "--local-rank-arg", kind, file)
    assert sorted(done.stdout.split()) == ["0", "1"]
    assert done.stderr == ""


def test_torch_distributed_launch_has_a_counterpart_that_gives_the_local_rank(tmp_path):
    file = script(tmp_path, DECLARES.format("--local-rank") + PRINTS)
    command = (*LAUNCH, "--no-prefix", "--quiet")
    assert sorted(run(*command, "--nproc_per_node=2", file).stdout.split()) == ["0", "1"]
    done = run(*command, "--use_env", "--nproc_per_node=2", file)
    assert (done.stdout.split(), done.stderr) == (["0", "0"], "")


def test_a_script_that_declares_the_other_spelling_is_told_which_to_ask_for(tmp_path):
    file = script(tmp_path, DECLARES.format("--local_rank") + PRINTS)
    command = (*LAUNCH, "--no-prefix", "--quiet")
    done = run(*command, "--nproc_per_node=2", file)
    assert done.returncode == 2
    assert "type --local-rank-arg underscore\n" in done.stderr
    done = run(*command, "--nproc_per_node=2", "--local-rank-arg", "underscore", file)
    assert (sorted(done.stdout.split()), done.stderr) == (["0", "1"], "")


def test_whoever_names_no_script_for_its_local_rank_is_told_the_line_of_the_bundled_loop():
    done = run(*LAUNCH, "--nproc_per_node=2")
    assert done.returncode == 2
    assert "no script is named" in done.stderr
    assert done.stderr.endswith("type python -m spawnlaunch --nproc 2\n")


def test_whoever_reads_LOCAL_RANK_is_not_told_of_an_argument():
    text = DECLARES.format("--local_rank") + "import os; os.environ['LOCAL_RANK']"
    request = Request(program=Program("script", "x.py", ()), python="python")
    assert list(local_rank.advice(request, text)) == []
    assert list(local_rank.advice(request, text.replace("LOCAL_RANK", "")))


def test_what_a_worker_leaves_that_ended_well_may_end_by_itself(tmp_path):
    mark = tmp_path / "uploaded"
    file = script(tmp_path, LEAVES.format(f"sleep 3; touch {mark}"))
    done = launch("--nproc", 2, "--quiet", file)
    assert done.returncode == 0
    assert mark.exists()
    assert "and left pid " in done.stderr


def test_what_does_not_end_by_itself_is_told_to_and_then_killed(tmp_path):
    file = script(tmp_path, LEAVES.format("trap '' TERM; while :; do sleep 1; done"))
    done = launch("--nproc", 2, "--quiet", "--grace", 2, file)
    assert done.returncode == 0
    assert "told to end: 2 s are" in done.stderr
    assert "killing pid " in done.stderr


def test_an_end_though_restarts_are_left_says_why():
    done = launch("--max-restarts", 3, "--quiet", "--no-python", "sh", "-c", "exit 75")
    assert done.returncode == 75
    assert "no restart after status 75," in done.stderr
    assert "type --no-restart-status 2\n" in done.stderr


def test_redirects_without_a_directory_make_one_and_say_where(tmp_path):
    environ = clean_environ(TMPDIR=str(tmp_path))
    words = ("--redirects", 3, "--quiet", "--no-python", "echo", "hello")
    done = launch("--nproc", 2, *words, environ=environ)
    assert (done.stdout, done.returncode) == ("", 0)
    place = Path(done.stderr.partition("the streams are kept in ")[2].strip())
    assert place.parent == tmp_path
    assert [file.read_text() for file in place.rglob("stdout.log")] == ["hello\n"] * 2


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--redirects", "0", "--log-dir", "logs"], ""),
        (["--redirects", "0:0", "--log-dir", "logs"], ""),
        (["--log-dir", "/dev/null"], ""),
        (["--log-dir", "/dev/null", "--redirects", "3", "--tee", "1"], "and all is shown\n"),
    ],
)
def test_where_no_stream_is_to_be_kept_none_is(flags, said, tmp_path):
    done = launch("--quiet", *flags, "--no-python", "echo", "x", cwd=tmp_path)
    assert (done.stdout, done.returncode) == ("x\n", 0)
    assert done.stderr.endswith(said)
    assert bool(done.stderr) == bool(said)
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []


def test_names_of_rdzv_conf_that_mean_nothing_are_said_and_quotes_of_a_yaml_file_are_taken_off():
    conf = "'join_timeout=60,a=1,b=2'"
    done = launch("--quiet", "--rdzv-conf", conf, "--no-python", "true")
    assert done.returncode == 0
    assert "--rdzv-conf a, b:" in done.stderr


def test_two_runs_of_one_id_keep_their_files_apart(tmp_path):
    words = ("--log-dir", tmp_path, "--rdzv-id", "exp", "--redirects", 1, "--quiet", "--no-python")
    assert launch(*words, "echo", "first").stderr == ""
    assert f"are in {tmp_path}/exp_2" in launch(*words, "echo", "second").stderr
    kept = {
        file.relative_to(tmp_path).parts[0]: file.read_text() for file in tmp_path.rglob("*.log")
    }
    assert kept == {"exp": "first\n", "exp_2": "second\n"}


def test_a_busy_port_that_was_only_inherited_is_replaced_and_said():
    with socket.socket() as busy:
        busy.bind(("", 0))
        busy.listen()
        port = str(busy.getsockname()[1])
        done = launch("--nproc", 2, "--quiet", ROOT / "tests/workers/report.py",
                      environ=clean_environ(MASTER_PORT=port))  # fmt: skip
    assert done.returncode == 0
    assert f"MASTER_PORT {port} is in use" in done.stderr
    assert len(reports(done.stdout)) == 2


def test_the_only_pod_of_a_job_is_no_outer_launcher():
    pod = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
    assert explain("--nproc", 2, "--standalone", **pod)["warnings"] == []


@pytest.mark.parametrize(
    ("typed", "environ"),
    [
        (("--nproc_per_node=2", "--no-prefix"), {}),
        (("--no-prefix",), {"PET_NPROC_PER_NODE": "2"}),
        (("--nproc_per_node=2", "--no-prefix"), {"PET_NPROC_PER_NODE": "many"}),
    ],
)
def test_a_line_to_type_says_all_that_was_typed_and_exported(typed, environ, tmp_path):
    """Also where it is not typed where the variables are."""
    file = script(tmp_path, DECLARES.format("--local-rank") + PRINTS)
    for command, ranks in ((LAUNCH, ["0", "1"]), (LAUNCHER, ["0", "0"])):
        done = run(*command, *typed, file, environ=clean_environ(**SHELL_OF_TWO_NODES, **environ))
        assert done.returncode == 2
        line = done.stderr.rpartition("for this machine alone: ")[2]
        assert sorted(run("sh", "-c", line).stdout.split()) == ranks


@pytest.mark.parametrize("rank", ["0", "1"])
def test_ranks_in_the_environment_are_taken_for_a_pods_which_each_launcher_says(rank):
    pod = {"RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "23456"}
    (said,) = (line for line in explain("--nproc", 2, **pod)["warnings"] if "pod's" in line)
    assert f"RANK={rank} WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=23456 are taken" in said
    assert f"node {rank} of 2, and waits for the others" in said
    assert said.endswith("type unset RANK WORLD_SIZE, or type --standalone")


@pytest.mark.parametrize("rank", ["0", "1"])
def test_nobody_waits_for_a_node_that_an_exported_world_size_has_promised(rank):
    left = {"RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
    words = ("--quiet", "--nproc-per-node", 2, "--no-python", "sh", "-c", "echo $RANK $WORLD_SIZE")
    done = launch(*words, environ=clean_environ(**left))
    assert sorted(done.stdout.splitlines()) == ["0 2", "1 2"]
    assert f"RANK={rank} WORLD_SIZE=2 MASTER_ADDR=localhost" in done.stderr
    assert "; type unset RANK WORLD_SIZE;" in done.stderr
    del left["RANK"], left["WORLD_SIZE"]
    assert launch(*words, environ=clean_environ(**left)).stderr == ""


def test_the_first_local_rank_has_a_virtual_device_too():
    done = launch("--nproc", 2, "--quiet", "--virtual-local-rank", "--no-python", "sh", "-c",
                  "echo $LOCAL_RANK $CUDA_VISIBLE_DEVICES")  # fmt: skip
    assert sorted(done.stdout.splitlines()) == ["0 0", "0 1"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [(["--prefix", "always"], "[0] x\n"), (["--prefix", "never"], "x\n"), ([], "x\n")],
)
def test_a_prefix_always_never_or_where_there_are_several_ranks(flags, said):
    done = run(sys.executable, "-m", "spawnlaunch", "--quiet", *flags, "--no-python", "echo", "x")
    assert done.stdout == said


# Each worker leaves its environment in a file, whatever becomes of its streams.
LEAVES_ENVIRON = "import json, os; json.dump(dict(os.environ), open(os.environ['RANK'], 'w'))"


def environ_of_rank_0(directory: Path, *flags: str, terminal: bool) -> dict[str, str]:
    """What the worker of a launch has on a terminal of 90 columns and 20 lines, or in a pipe."""
    directory.mkdir()
    ours, theirs = pty.openpty()
    subprocess.run(["stty", "cols", "90", "rows", "20"], stdin=theirs, check=True)
    stream = theirs if terminal else subprocess.PIPE
    environ = clean_environ(TERM="xterm", PYTHONPATH=str(ROOT))
    for name in ("COLUMNS", "LINES", "FORCE_COLOR"):
        environ.pop(name, None)
    command = [
        *LAUNCHER,
        "--nproc",
        "2",
        "--quiet",
        *flags,
        "--no-python",
        sys.executable,
        "-c",
        LEAVES_ENVIRON,
    ]
    subprocess.run(command, stdout=stream, stderr=stream, env=environ, cwd=directory, check=True)
    os.close(theirs)
    os.close(ours)
    return json.loads((directory / "0").read_text())


@pytest.mark.parametrize("flags", [(), ("--tee", "3", "--log-dir", "logs"), ("--redirects", "1")])
def test_a_terminal_gives_workers_its_size_and_nothing_else(flags, tmp_path):
    seen = [environ_of_rank_0(tmp_path / f"{on}", *flags, terminal=on) for on in (True, False)]
    differ = {name: value for name, value in seen[0].items() if seen[1].get(name) != value}
    for name in (
        "SPAWNLAUNCH_WORKER",
        "SPAWNLAUNCH_WITNESS",
        "TORCHELASTIC_ERROR_FILE",
        "TORCHELASTIC_RUN_ID",
        "MASTER_PORT",
    ):
        differ.pop(name, None)  # of each launch its own
    size = {"COLUMNS": "90", "LINES": "20", "SPAWNLAUNCH_TERMINAL_COLUMNS": "90"}
    assert differ == ({} if flags else size)


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
    assert names.split(word) == read


@pytest.mark.parametrize(
    ("typed", "words"),
    [(["--nproc_per_node", "gpu"], "--nproc_per_node gpu: no GPU"), (["--sta"], "--standalone or")],
)
def test_a_message_names_the_flag_that_was_typed(typed, words, tmp_path):
    done = launch(*typed, script(tmp_path, ""))
    assert done.returncode == 2
    assert words in done.stderr


@pytest.mark.parametrize("typed", [["--steps", "20"], ["--nproc", 2, "--epochs=3"], ["-c", "x"]])
def test_an_unknown_flag_is_not_answered_by_the_training_loops_command_line(typed):
    said = launch(*typed).stderr
    assert "unknown flag" in said
    assert "-- -" not in said


@pytest.mark.parametrize("host", ["[::1]", "127.0.0.1"])
def test_launchers_meet_at_an_address_of_either_family(host):
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as free:
        free.bind((host.strip("[]"), 0))
        port = free.getsockname()[1]
    words = ("--nnodes", 2, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{host}:{port}",
             "--quiet", "--no-python", "sh", "-c", "echo $RANK $MASTER_ADDR")  # fmt: skip
    other = start(*LAUNCHER, *words)
    said = launch(*words).stdout + other.communicate(timeout=PATIENCE_S)[0]
    assert other.returncode == 0
    assert sorted(said.splitlines()) == [f"{rank} {host.strip('[]')}" for rank in (0, 1)]


@pytest.mark.parametrize("word", ["xpu", "hpu", "npu"])
def test_workers_for_devices_of_one_kind_are_not_counted_by_those_of_another(word, tmp_path):
    build(tmp_path, LUMI)
    done = launch("--explain", "--sysfs-root", tmp_path, "--nproc", word, REPORTER)
    assert done.returncode == 2
    assert f"no {word.upper()} is visible here (what" in done.stderr


def test_workers_for_each_XPU_are_as_many_as_there_are(tmp_path):
    build(tmp_path, AURORA)
    assert len(explain("--sysfs-root", tmp_path, "--nproc", "xpu")["workers"]) == 12
