"""A quota of CPU time bounds threads and workers, and one line says so."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from spawnlaunch.cli.flags import Program, Request
from spawnlaunch.node import cgroup
from spawnlaunch.node.hardware import Quota
from tests import machines
from tests.binding.test_policy import bound
from tests.machines.small import TWO_NODES, small
from tests.machines.tree import Gpu, Machine, node_of
from tests.support.explained import explain
from tests.support.launching import clean_environ, run
from tests.support.patience import PATIENCE_S

V2 = {"proc/mounts": "cgroup2 /cg cgroup2 rw 0 0", "proc/self/cgroup": "0::/pod/box"}
V1 = {"proc/mounts": "cgroup /cg/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0",
      "proc/self/cgroup": "5:cpu,cpuacct:/pod/box\n4:memory:/elsewhere"}  # fmt: skip
INFO = {"proc/self/mountinfo": "36 30 0:29 /docker/9f /cg/cpu,cpuacct ro - cgroup cgroup rw,cpu"}
GPUS = (Gpu(0, "0-1"), Gpu(1, "2-3"))


def v2(**limits: str) -> dict[str, str]:
    """What cpu.max of groups of version 2 says: of the mount, the pod, and the box in it."""
    where = {"top": "cg", "pod": "cg/pod", "box": "cg/pod/box"}
    return V2 | {f"{where[group]}/cpu.max": limit for group, limit in limits.items()}


def v1(group: str, quota: int, period: int = 100000) -> dict[str, str]:
    """A group of version 1 with its quota."""
    files = {"cpu.cfs_quota_us": str(quota), "cpu.cfs_period_us": str(period)}
    return {f"cg/cpu,cpuacct{group}/{name}": text for name, text in files.items()}


def of(files: Mapping[str, str], gpus: tuple[Gpu, ...] = ()) -> Machine:
    """Four cores on two NUMA nodes, and these files."""
    return small(4, TWO_NODES, gpus, files=files)


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        (v2(box="max 100000", pod="150000 100000"), (1.5, "/cg/pod/cpu.max")),
        (v2(box="100000 50000", pod="300000 100000"), (2.0, "/cg/pod/box/cpu.max")),
        (v2(box="300000 100000", pod="max 100000", top="1000 100000"), (0.01, "/cg/cpu.max")),
        # In a container the path is the host's, and the mount is the container's own group.
        (V2 | {"cg/cpu.max": "200000 100000"}, (2.0, "/cg/cpu.max")),
        (V1 | v1("/pod/box", -1) | v1("/pod", 350000) | v1("", -1),
         (3.5, "/cg/cpu,cpuacct/pod/cpu.cfs_quota_us")),
        (V1 | v1("/pod/box", 50000, 25000) | v1("/pod", 300000),
         (2.0, "/cg/cpu,cpuacct/pod/box/cpu.cfs_quota_us")),
        # A group within a container that shows the host's path, and the container's own.
        *((INFO | {"proc/self/cgroup": f"3:cpu:/docker/9f{inner}"} | v1("/in", 300000)
           | v1("", 350000), (cpus, f"/cg/cpu,cpuacct{inner}/cpu.cfs_quota_us"))
          for inner, cpus in (("/in", 3.0), ("", 3.5))),
        (V1 | v1("", 200000), (2.0, "/cg/cpu,cpuacct/cpu.cfs_quota_us")),
        # Version 2 is there too, and has other controllers.
        ({**V1, "proc/mounts": f"{V1['proc/mounts']}\n{V2['proc/mounts']}",
          **v1("/pod", 200000)}, (2.0, "/cg/cpu,cpuacct/pod/cpu.cfs_quota_us")),
        (v2(box="max 100000"), None),
        (v2(box="100000 0", pod="lots 100000"), None),
        (V1 | v1("/pod/box", -1), None),
        ({}, None),
    ],
)  # fmt: skip
def test_the_smallest_quota_of_all_groups_counts(
    files: dict[str, str], quota: tuple[float, str] | None
) -> None:
    told = explain(of(files), "--nproc 1")
    assert told["node"]["quota"] == (quota and dict(zip(("cpus", "path"), quota, strict=True)))


@pytest.mark.parametrize(
    ("limit", "arguments", "threads"),
    [
        ("100000 100000", "--nproc 1", [1]),
        ("300000 100000", "--nproc 1", [3]),
        ("399999 100000", "--nproc 1", [3]),
        ("50000 100000", "--nproc 1", [1]),
        ("300000 100000", "--nproc 2", [1, 1]),
        ("400000 100000", "--nproc 2", [2, 2]),
        ("300000 100000", "--nproc 1 --bind none", [3]),
        ("300000 100000", "--nproc 1 --bind 0-1", [2]),
        ("200000 100000", "--nproc cpu", [1, 1]),
        ("250000 100000", "--nproc auto", [1, 1]),
        ("50000 100000", "--nproc auto", [1]),
        ("800000 100000", "--nproc cpu", [1] * 4),
        ("100000 100000", "--nproc 1 --threads 4", [4]),
    ],
)
def test_ranks_divide_the_quota(limit: str, arguments: str, threads: list[int]) -> None:
    told = explain(of(v2(pod=limit)), arguments)
    assert [worker["threads"] for worker in told["workers"]] == threads
    assert [worker["env"]["OMP_NUM_THREADS"] for worker in told["workers"]] == [*map(str, threads)]


def test_masks_and_the_number_of_devices_stay() -> None:
    told = explain(of(v2(pod="100000 100000"), GPUS), "--nproc auto")
    assert [worker["cpus"] for worker in told["workers"]] == ["0-1", "2-3"]


@pytest.mark.parametrize(
    ("limit", "arguments", "environ", "said"),
    [
        ("100000 100000", "--nproc 1", {}, ["the rank computes with 1 thread, not 4"]),
        ("200000 100000", "--nproc 2", {}, ["each of 2 ranks computes with 1 thread, not 2"]),
        ("100000 100000", "--nproc cpu", {},
         ["--nproc cpu starts 1 worker, not 4", "the rank computes with 1 thread, not 4"]),
        ("100000 100000", "--nproc 4", {}, ["each of 4 ranks has the time of 0.25 CPUs"]),
        ("200000 100000", "--nproc 1 --threads 4", {}, ["--threads 4 is more than 2 threads"]),
        ("200000 100000", "--nproc 1 --threads 2", {}, []),
        ("200000 100000", "--nproc 1", {"OMP_NUM_THREADS": "3"}, ["OMP_NUM_THREADS=3 is more"]),
        ("200000 100000", "--nproc 1", {"OMP_NUM_THREADS": "2"}, []),
        ("400000 100000", "--nproc 1", {}, []),
        ("400000 100000", "--nproc cpu", {}, []),
    ],
)  # fmt: skip
def test_one_line_says_what_a_quota_changes(
    limit: str, arguments: str, environ: dict[str, str], said: list[str]
) -> None:
    told = explain(of(v2(pod=limit)), arguments, environ)
    lines = [line for line in told["warnings"] if "(/cg/pod/cpu.max)" in line]
    assert len(lines) == bool(said)
    assert all(words in lines[0] for words in said)
    for name, value in environ.items():  # what the user has set is inherited as it is
        assert told["workers"][0]["env"].get(name, value) == value


def test_a_task_of_a_snapshot_divides_the_quota_with_the_others() -> None:
    task = {"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"}
    told = explain(of(v2(pod="200000 100000")), "--bind 0-1:2-3 --master-port 29500", task)
    assert (told["mode"], [worker["threads"] for worker in told["workers"]]) == ("task", [1])


@pytest.mark.parametrize(("alone", "threads"), [(False, 4), (True, 16)])
def test_a_group_that_holds_one_task_alone_is_not_divided(
    monkeypatch: pytest.MonkeyPatch, alone: bool, threads: int
) -> None:
    monkeypatch.setattr(cgroup, "holds_alone", lambda _: alone)
    node = node_of(machines.LUMI)._replace(quotas=(Quota(16.0, "/cg/cpu.max"),), devices=())
    request = Request(Program("script", "x.py", ()), "python")
    assert {each.threads for each in bound(node, request, "task", 4).bindings} == {threads}
    assert {each.threads for each in bound(node, request, "local", 4).bindings} == {4}


# Real groups


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group of version 1 with the time of one CPU, and a group in it."""
    directory = Path(f"/sys/fs/cgroup/cpu/spawnlaunch-test-{os.getpid()}")
    try:
        (directory / "inner").mkdir(parents=True)
    except OSError:
        pytest.skip("cannot make a control group here")
    (directory / "cpu.cfs_period_us").write_text("100000")
    (directory / "cpu.cfs_quota_us").write_text("100000")
    yield directory
    while (directory / "cgroup.procs").read_text():  # what was killed is about to end
        time.sleep(0.01)
    (directory / "inner").rmdir()
    directory.rmdir()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_a_launch_in_a_real_group_starts_as_many_as_it_can_run(group: Path) -> None:
    line = ["--explain=json", "--nproc", "cpu", "--no-python", "true"]
    inside = ("sh", "-c", f'echo $$ > {group}/inner/tasks; exec "$@"', "sh")
    done = run(*inside, sys.executable, "-m", "spawnlaunch", *line, environ=clean_environ())
    told = json.loads(done.stdout)
    assert told["node"]["quota"] == {"cpus": 1.0, "path": f"{group}/cpu.cfs_quota_us"}
    assert [worker["threads"] for worker in told["workers"]] == [1]


ALONE = (
    "from spawnlaunch.node import cgroup, hardware; import sys; "
    "print(cgroup.holds_alone(hardware.Quota(1.0, sys.argv[1])))"
)


@pytest.mark.parametrize(
    ("before", "other", "alone"),
    [
        ("", "", True),
        ("sleep 60 & ", "", True),  # a child of the shell that becomes the task
        ("", "tasks", False),
        ("", "inner/tasks", False),
    ],
)
def test_a_task_has_a_group_alone_with_its_family(
    group: Path, before: str, other: str, alone: bool
) -> None:
    stranger = subprocess.Popen(["sleep", "600"]) if other else None
    try:
        if stranger:
            (group / other).write_text(str(stranger.pid))
        # The shell outside waits for the one that becomes the task, and ends what that has left.
        task = f'echo $$ > {group}/tasks; {before}exec "$@"'
        ended = 'setsid sh -c "$0" sh "$@" & wait $!; kill -- -$! 2>/dev/null; true'
        command = [sys.executable, "-c", ALONE, f"{group}/cpu.cfs_quota_us"]
        done = subprocess.run(
            ["sh", "-c", ended, task, *command],
            capture_output=True, text=True, env=clean_environ(), timeout=PATIENCE_S, check=True,
        )  # fmt: skip
        assert done.stdout.strip() == str(alone), done.stderr
    finally:
        if stranger:
            stranger.kill()
            stranger.wait()


def test_of_a_group_that_cannot_be_read_nobody_knows_whose_it_is(tmp_path: Path) -> None:
    assert not cgroup.holds_alone(Quota(1.0, f"{tmp_path}/cpu.max"))
