"""The check program inside real workers of several launchers."""

import json
import os
import shlex
import sys
from typing import Any

import pytest

from spawnlaunch import node as nodes
from tests.support.launching import LAUNCHER, clean_environ, launch, run
from tests.support.matrix import mostly_full

CHECK = ("-m", "spawnlaunch.check")
CPUS = sorted(os.sched_getaffinity(0))
SEVERAL_NODES = len(nodes.read().memory_nodes) > 1

needs_two_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")


def told(*command: object) -> tuple[int, dict[str, Any]]:
    """The status of a command that ends in the check with --json, and what it printed."""
    done = run(*command)
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"ranks"')]
    assert len(lines) == 1, done.stderr
    return done.returncode, json.loads(lines[0])


@pytest.mark.full
@needs_two_cpus
def test_pinned_workers_keep_their_cpus_in_all_threads_and_in_loaders():
    status, said = told(*LAUNCHER, "--nproc", 2, *CHECK, "--json")
    # A busy machine may well make a rank slower than the other, which is a warning.
    wrong = [one for one in said["verdicts"] if one["status"] == "fail"]
    assert (status, wrong, set(said)) == (0, [], {"ranks", "verdicts"})
    assert [one["rank"] for one in said["ranks"]] == [0, 1]
    assert len(said["verdicts"]) == len({(one["name"], one["message"]) for one in said["verdicts"]})
    masks = [rank["cpus"] for rank in said["ranks"]]
    assert len(set(masks)) == 2
    for rank in said["ranks"]:
        assert rank["threads"] == [rank["cpus"]]
        assert rank["loader_cpus"] == rank["cpus_at_start"] == rank["cpus"]
        # Where there is one node to allocate from, there is nothing to prefer.
        assert rank["memory"].split()[0] == ("preferred" if SEVERAL_NODES else "default")


@pytest.mark.full
@needs_two_cpus
def test_unpinned_workers_of_torchrun_are_told_that_they_share():
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    status, said = told(*torchrun, *CHECK, "--json")
    assert status != 0
    # Ranks on the same CPUs need not be as fast as each other.
    wrong = [one for one in said["verdicts"] if one["status"] in ("warn", "fail")]
    (found,) = [one for one in wrong if one["name"] != "matrix product"]
    assert (found["name"], found["ranks"]) == ("shared-cores", [0, 1])


@pytest.mark.full
@needs_two_cpus
def test_only_flags_that_were_typed_are_to_be_left_out():
    same = ["--quiet", "--nproc", 2, "--bind", f"{CPUS[0]}:{CPUS[0]}", *CHECK, "--json"]
    for before, advice in (((), "leave --bind out"), (("taskset", "-c", CPUS[0]), "start fewer")):
        _, said = told(*before, *LAUNCHER, *same)
        (found,) = [one for one in said["verdicts"] if one["name"] == "shared-cores"]
        assert found["remedy"].startswith(advice)


@pytest.mark.full
@needs_two_cpus
def test_a_fault_ends_the_launch_with_its_status() -> None:
    done = launch("--quiet", "--nproc", 2, "--bind", "none", *CHECK)
    assert done.returncode == 1
    assert "exited with status 1" in done.stderr
    assert "shared-cores" in done.stdout


@pytest.mark.full
@needs_two_cpus
def test_a_mask_that_openmp_takes_away_is_named_before_and_found_afterwards():
    done = launch("--nproc", 1, *CHECK, environ=clean_environ(OMP_PROC_BIND="true"))
    assert done.returncode == 1
    assert "OMP_PROC_BIND=true binds the worker's main thread" in done.stderr
    assert "drift" in done.stdout


@pytest.mark.parametrize("flag", mostly_full(["--help", "", "--json"]))
def test_where_it_cannot_print_it_says_so_and_fails(flag: str):
    done = run("sh", "-c", f"exec {shlex.join([sys.executable, *CHECK])} {flag} >/dev/full")
    assert done.returncode == os.EX_IOERR
    assert "spawnlaunch check: error: cannot write to stdout:" in done.stderr


@pytest.mark.parametrize(
    ("variables", "seen"),
    [
        ({}, "MASTER_ADDR and MASTER_PORT not"),
        ({"MASTER_ADDR": "a"}, "MASTER_PORT not"),
        ({"MASTER_ADDR": "a", "MASTER_PORT": "http"}, "MASTER_PORT='http' is not a port"),
        ({"RANK": "one"}, "RANK='one' is not a whole number"),
    ],
)
def test_ranks_that_cannot_meet_are_refused_with_what_to_type(variables: dict[str, str], seen: str):
    environ = clean_environ(**{"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", **variables})
    done = run(sys.executable, *CHECK, environ=environ)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("spawnlaunch check: error: ")
    assert seen in line
    assert "; export " in line or "; unset " in line
