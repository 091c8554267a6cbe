"""--explain: what every launcher of a job would do, and why, without doing any of it."""

import json
import os
import signal
from pathlib import Path

import pytest

from spawnlaunch.workers.environment import MARK, WITNESS
from tests.machines.small import small
from tests.machines.tree import build
from tests.support.launching import (
    LAUNCHER,
    MPICH_RANK,
    REPORTER,
    SLURM_TASK,
    clean_environ,
    explain,
    launch,
    run,
)
from tests.support.ports import free_port

STEP = {**SLURM_TASK, "SLURM_NTASKS": "4"}
BY_HAND = "--nproc 2 --nnodes 2 --node-rank 1 --master-addr node0"
LAUNCHES = [
    ("task", "", STEP),
    ("task", "--master-addr node0", MPICH_RANK),
    ("node", BY_HAND, {}),
    ("local", "--nproc 2", {}),
]


def explain_text(*flags: object, **environ: str) -> str:
    done = launch("--explain", *flags, environ=clean_environ(**environ))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize(("mode", "flags", "environ"), LAUNCHES)
def test_each_value_has_its_source_and_what_it_was_preferred_to(
    mode: str, flags: str, environ: dict[str, str]
) -> None:
    found = explain(*flags.split(), **environ)
    assert list(found) == ["mode", "world", "sources", "node", "workers", "warnings"]
    assert found["mode"] == mode
    for name, source in found["sources"].items():
        assert source["value"] == {**found["world"], "mode": mode}[name]
        assert source["source"], name
        for lost in source["lost"]:
            assert list(lost) == ["value", "source", "why"]
            assert lost["source"] != source["source"]


def test_what_would_be_started_is_what_is_started():
    port = free_port()
    (explained,) = explain("--master-port", port)["workers"]
    done = launch("--master-port", port, REPORTER)
    (worker,) = (json.loads(line) for line in done.stdout.splitlines())
    # Of each launch its own, or of each process.
    differ = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", MARK, WITNESS)
    for name, value in explained["env"].items():
        assert name in differ or worker["environ"][name] == value, name


def test_people_read_every_value_its_source_and_the_candidates_that_lost():
    lines = explain_text(REPORTER, **STEP).splitlines()
    assert lines[0] == "resource manager  Slurm"
    assert "mode              task                  Slurm started one process per rank" in lines
    assert "rank              2                     SLURM_PROCID" in lines
    size = lines.index("world_size        3                     SLURM_STEP_NUM_TASKS")
    lost = "not 4 from SLURM_NTASKS: SLURM_STEP_NUM_TASKS comes before it"
    assert lines[size + 1].strip() == lost
    assert any(line.strip() == "MASTER_ADDR=node0" for line in lines)
    assert any(line.strip().endswith(f"-u {REPORTER}") for line in lines)


def test_people_read_the_log_files_of_a_task_and_that_the_hub_assigns_the_port(tmp_path: Path):
    lines = explain_text("--redirects", 1, "--log-dir", tmp_path, REPORTER, **STEP).splitlines()
    logs = [line.strip() for line in lines if ".log" in line]
    (run,) = (line.split()[1] for line in lines if line.startswith("run_id"))
    assert logs == [f"stdout.log: {tmp_path}/{run}/attempt_0/2/stdout.log"]
    lines = explain_text(*BY_HAND.split(), REPORTER).splitlines()
    assert "    MASTER_PORT=assigned by the hub" in lines


def test_people_read_unknown_where_a_manager_does_not_say():
    text = explain_text("--master-addr", "node0", REPORTER, **MPICH_RANK)
    assert "node_rank         unknown               not exported" in text.splitlines()


@pytest.mark.parametrize("encoding", ["ascii:strict", "utf-8:strict"])
def test_a_value_in_no_encoding_can_be_shown(encoding: str):
    flags = ("--master-addr", "nod\udcff", REPORTER)
    text = explain_text(*flags, PYTHONIOENCODING=encoding, **STEP)
    assert r"master_addr       nod\udcff " in text


@pytest.mark.parametrize("how", ["--explain", "--explain=json"])
def test_it_starts_nothing_and_leaves_nothing(how: str, tmp_path: Path):
    scratch, cwd = tmp_path / "scratch", tmp_path / "cwd"
    scratch.mkdir()
    cwd.mkdir()
    done = launch(
        *(how, "--nproc", 2, "--redirects", 3, "--log-dir", "logs"),
        *("--no-python", "touch", "started"),
        cwd=cwd,
        environ=clean_environ(TMPDIR=str(scratch)),
    )
    assert done.returncode == 0, done.stderr
    assert list(cwd.iterdir()) == list(scratch.iterdir()) == []


def test_the_port_it_names_is_free_again():
    port = free_port()
    for _ in range(2):
        assert explain("--nproc", 2, "--master-port", port)["world"]["master_port"] == port
        assert f"spawnlaunch-port-{port}" not in Path("/proc/net/unix").read_text()


def test_a_reader_that_has_seen_enough_ends_it_as_it_ends_other_programs():
    reader, writer = os.pipe()
    os.close(reader)
    command = [*LAUNCHER, "--explain", str(REPORTER)]
    done = run(*command, stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, "")


def test_a_quota_and_isolated_cpus_are_shown_with_their_files(tmp_path: Path):
    files = {"sys/devices/system/cpu/isolated": "2-3", "cg/cpu.max": "150000 100000",
             "proc/mounts": "cgroup2 /cg cgroup2 rw 0 0", "proc/self/cgroup": "0::/"}  # fmt: skip
    root = build(tmp_path, small(4, files=files))
    lines = explain_text("--sysfs-root", root, REPORTER).splitlines()
    assert "quota of CPUs     1.5                   /cg/cpu.max" in lines
    assert "isolated CPUs     2-3                   /sys/devices/system/cpu/isolated" in lines
