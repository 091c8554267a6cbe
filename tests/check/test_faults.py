"""Faults set on purpose: each is named with its ranks and is status 1; healthy jobs have none."""

import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from spawnlaunch import cpuset
from spawnlaunch.check import findings, verdicts
from spawnlaunch.check.facts import Facts
from spawnlaunch.check.verdict import FAIL, WARN, Verdict
from tests.check.test_check import told
from tests.check.test_findings import GOOD
from tests.check.test_preflight import rank as measured
from tests.support.launching import LAUNCHER, clean_environ, run

CHECK = ("-m", "spawnlaunch.check")
HEALTHY_JOBS = 50
FAULTS = 40


class Job(NamedTuple):
    """What the ranks of a job have told."""

    facts: list[Facts]
    measured: list[dict[str, Any]]

    def but(self, rank: int, **other: Any) -> "Job":
        """With a rank of other facts."""
        facts = [one._replace(**other) if one.rank == rank else one for one in self.facts]
        return self._replace(facts=facts)

    def but_measured(self, rank: int, **other: Any) -> "Job":
        return self._replace(measured=[{**one, **other} if one["rank"] == rank else one
                                       for one in self.measured])  # fmt: skip

    def faults(self) -> list[Verdict]:
        found = [*findings.findings(self.facts), *verdicts.verdicts(self.measured)]
        return [one for one in found if one.status in (WARN, FAIL)]


def healthy(rng: random.Random) -> Job:
    """One to three nodes of 1, 2 or 4 NUMA nodes, a device for each rank or none at all."""
    hosts, numa = rng.randint(1, 3), rng.choice([1, 2, 4])
    local = numa * rng.choice([1, 2])
    local += local == hosts == 1  # at least two ranks
    cores, threads_of_core = rng.choice([2, 4, 12]), rng.choice([1, 2])
    has_devices = rng.random() < 0.7
    width = cores * threads_of_core
    facts, ranks = [], []
    for rank in range(hosts * local):
        host, place = divmod(rank, local)
        home = place * numa // local
        cpus = f"{place * width}-{place * width + width - 1}"
        memory = rng.choice(["default", f"preferred {home}", f"bind {home}", "interleave 0-3"])
        facts.append(GOOD._replace(
            rank=rank, local_rank=place, host=f"node{host}",
            device=place if has_devices else None,
            device_address=f"0000:{place:02x}:00.0" if has_devices else None,
            device_cpus=cpus if has_devices else None,
            device_numa=home if has_devices else None,
            devices_seen=local if has_devices else 0,
            cpus=cpus, cpus_at_start=cpus, threads=(cpus,), loader_cpus=cpus, cores=cores,
            cores_of_node=cores * local, numa=str(home), memory=memory, memory_near=str(home),
            memory_allowed=f"0-{numa - 1}", given=f"0-{width * local - 1}", given_cores=cores,
            omp_threads=rng.randint(1, width), launched=rng.random() < 0.5,
        ))  # fmt: skip
        noise = rng.uniform(0.85, 1)
        ranks.append(measured(rank, host=f"node{host}", gflops_per_thread=40 * noise,
                              clock_s=rng.uniform(-0.5, 0.5)))  # fmt: skip
    return Job(facts, ranks)


def neighbour(job: Job, rank: int) -> Facts | None:
    """Another rank of the same node."""
    mine = job.facts[rank]
    others = [one for one in job.facts if one.host == mine.host and one.rank != rank]
    return others[0] if others else None


def shared_device(job: Job, rank: int, _rng: random.Random) -> Job | None:
    other = neighbour(job, rank)
    if other is None or other.device is None:
        return None
    near = {name: getattr(other, name) for name in ("device", "device_address")}
    return job.but(rank, **near, device_cpus=None)


def no_device(job: Job, rank: int, _rng: random.Random) -> Job | None:
    nothing = {"device": None, "device_address": None, "device_cpus": None, "device_numa": None}
    return job.but(rank, **nothing, devices_seen=0) if job.facts[rank].devices_seen else None


def threads(job: Job, rank: int, rng: random.Random) -> Job | None:
    cpus = len(cpuset.parse(job.facts[rank].cpus))
    return job.but(rank, omp_threads=cpus * rng.choice([2, 4, 8]))


def far_policy(job: Job, rank: int, rng: random.Random) -> Job | None:
    far = int(job.facts[rank].memory_near) + 1
    mode = rng.choice(["bind", "preferred", "preferred-many", "interleave"])
    return job.but(rank, memory=f"{mode} {far}")


def far_cpuset(job: Job, rank: int, _rng: random.Random) -> Job | None:
    return job.but(rank, memory="default", memory_allowed=str(int(job.facts[rank].numa) + 1))


def shared_cores(job: Job, rank: int, _rng: random.Random) -> Job | None:
    other = neighbour(job, rank)
    if other is None:
        return None
    mask = other.cpus
    return job.but(rank, cpus=mask, cpus_at_start=mask, threads=(mask,), loader_cpus=mask,
                   device_cpus=None, memory="default")  # fmt: skip


def remote(job: Job, rank: int, _rng: random.Random) -> Job | None:
    return (
        job.but(rank, device_cpus="900-907", device_numa=9) if job.facts[rank].device_cpus else None
    )


def drift(job: Job, rank: int, rng: random.Random) -> Job | None:
    first = job.facts[rank].cpus.split("-")[0]
    return job.but(rank, **rng.choice([{"loader_cpus": first}, {"threads": ("", first)}]))


def slow(job: Job, rank: int, rng: random.Random) -> Job | None:
    return job.but_measured(rank, gflops_per_thread=4.0, others=rng.choice([0.0, 0.9]))


def slow_memory(job: Job, rank: int, _rng: random.Random) -> Job | None:
    return job.but_measured(rank, copied_gb_per_s=300.0)


def clock(job: Job, rank: int, rng: random.Random) -> Job | None:
    return job.but_measured(rank, clock_s=rng.choice([7.0, -7.0, 3600.0, 1.5]))


def versions(job: Job, rank: int, _rng: random.Random) -> Job | None:
    return job.but_measured(rank, versions={"torch": "2.12.0", "python": "3.11.7"})


def interface(job: Job, rank: int, rng: random.Random) -> Job | None:
    name = rng.choice(["GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME"])
    return job.but_measured(rank, nics={**job.measured[rank]["nics"], name: "nope0"})


def disk(job: Job, rank: int, _rng: random.Random) -> Job | None:
    return job.but_measured(rank, disks={"here": {"place": "/no", "error": "No such file"}})


def unreached(job: Job, rank: int, _rng: random.Random) -> Job | None:
    return job.but_measured(rank, rank_0="node0:29500: Connection refused")


SET = {
    shared_device: "shared-device", no_device: "no-device", threads: "threads",
    far_policy: "far-memory", far_cpuset: "far-memory", shared_cores: "shared-cores",
    remote: "remote", drift: "drift", slow: "matrix product", slow_memory: "memory",
    clock: "clocks", versions: "versions", interface: "network", disk: "disk",
    unreached: "rank 0",
}  # fmt: skip


def set_fault(seed: int, kind: Callable[[Job, int, random.Random], Job | None]) -> tuple[Job, int]:
    """A job with this fault on a rank that can have it."""
    rng = random.Random(seed)
    while True:
        job = healthy(rng)
        rank = rng.randrange(1, len(job.facts))  # what rank 0 has is what others are compared with
        faulty = kind(job, rank, rng)
        if faulty is not None:
            return faulty, rank


@pytest.mark.parametrize("seed", range(HEALTHY_JOBS))
def test_a_healthy_job_has_no_fault(seed: int):
    assert healthy(random.Random(seed)).faults() == []


@pytest.mark.parametrize("seed", range(FAULTS))
def test_a_fault_is_named_with_its_rank_and_fails(seed: int):
    kind = list(SET)[seed % len(SET)]
    job, rank = set_fault(seed, kind)
    found = [one for one in job.faults() if one.name == SET[kind]]
    assert [one.status for one in found] == [FAIL]
    host = job.facts[rank].host  # of a disk, and of who cannot be reached
    named = any(name in found[0].message for name in (f"rank {rank}", host))
    assert named or rank in found[0].ranks
    assert found[0].remedy


def test_what_oversubscribe_asked_for_is_no_fault():
    for kind in (shared_cores, shared_device):
        job, _ = set_fault(1, kind)
        meant = [one._replace(oversubscribed=True) for one in job.facts]
        assert job._replace(facts=meant).faults() == []


def test_a_rank_beside_others_is_slow_and_at_fault_only_where_it_is_very_slow():
    job = healthy(random.Random(3))
    for rate, others, status in ((16.0, 0.0, FAIL), (16.0, 0.9, WARN), (27.0, 0.0, WARN)):
        (found,) = job.but_measured(1, gflops_per_thread=rate, others=others).faults()
        assert (found.status, found.ranks) == (status, (1,))


def test_what_is_around_a_rank_is_noted_and_no_fault():
    job = healthy(random.Random(4))
    around = {**job.measured[0]["surroundings"], "load": 300.0, "quota_cpus": 1.5,
              "governors": ["powersave"], "swap_used": 1 << 31, "memory_limit": 1 << 30,
              "memory_used": 1 << 29}  # fmt: skip
    found = verdicts.verdicts([{**one, "surroundings": around} for one in job.measured])
    notes = {one.name for one in found if one.status == "note"}
    assert notes == {"load", "CPU quota", "governor", "swap", "memory limit"}
    assert not [one for one in found if one.status in (WARN, FAIL)]


# Real workers, of which rank 1 is at fault

AT_FAULT = """
import os, sys
if os.environ.get("RANK") == "1" and "spawnlaunch.check" in sys.orig_argv:
"""
CLOCK = "import time; now = time.time; time.time = lambda: now() + 7"
VERSION = "import platform; platform.python_version = lambda: '3.9.1'"
SAME_CORE = """import re
    os.sched_setaffinity(0, {int(re.split('[-,]', os.environ['SPAWNLAUNCH_NODE_CPUS'])[0])})"""
STOPPED = """import signal, time
    parent = os.getpid()
    if os.fork() == 0:
        while os.getppid() == parent:
            os.kill(parent, signal.SIGSTOP); time.sleep(0.045)
            os.kill(parent, signal.SIGCONT); time.sleep(0.005)
        os._exit(0)"""


def faulty(tmp_path: Path, code: str, *flags: str, **environ: str) -> tuple[int, dict[str, Any]]:
    """What the check says of two ranks, of which rank 1 begins with this code."""
    (tmp_path / "sitecustomize.py").write_text(f"{AT_FAULT}    {code}\n")
    path = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}:{Path(__file__).parents[2]}"
    command = (*LAUNCHER, "--quiet", "--nproc", 2, *CHECK, "--json", *flags)
    return told("env", *(f"{k}={v}" for k, v in {**environ, "PYTHONPATH": path}.items()), *command)


@pytest.mark.full
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
@pytest.mark.parametrize(
    ("code", "environ", "rule", "ranks"),
    [
        (CLOCK, {}, "clocks", [1]),
        (VERSION, {}, "versions", []),
        ("pass", {"OMP_NUM_THREADS": "8"}, "threads", [0]),
        ("pass", {"GLOO_SOCKET_IFNAME": "lo,nope0"}, "network", [0, 1]),
        ("pass", {"NCCL_SOCKET_IFNAME": "nope0"}, "network", [0, 1]),
        ("pass", {"NCCL_IB_HCA": "=mlx5_9"}, "network", [0, 1]),
        ("os.environ['OMP_NUM_THREADS'] = '16'", {}, "threads", [1]),
        ("import torch; torch.set_num_threads(9)", {}, "threads", [1]),
        ("os.environ['GLOO_SOCKET_IFNAME'] = 'nope0'", {}, "network", [1]),
        ("os.environ['NCCL_IB_HCA'] = '=mlx5_7'", {}, "network", [1]),
        (SAME_CORE, {}, "shared-cores", [0, 1]),
    ],
    ids=["clock", "version", "threads", "gloo", "nccl", "adapter", "threads of 1", "pool of 1",
         "gloo of 1", "adapter of 1", "core of 0"],
)  # fmt: skip
def test_a_fault_of_a_real_worker_is_named(
    tmp_path: Path, code: str, environ: dict[str, str], rule: str, ranks: list[int]
):
    status, said = faulty(tmp_path, code, **environ)
    found = [one for one in said["findings"] if one["rule"] == rule]
    assert [one["status"] for one in found][:1] == ["fail"], said["findings"]
    assert found[0]["ranks"] == ranks
    assert found[0]["remedy"]
    assert status == 1


@pytest.mark.full
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_a_real_worker_that_is_slow_is_named_and_at_fault_where_it_had_its_cpus_to_itself(
    tmp_path: Path,
):
    status, said = faulty(tmp_path, STOPPED)
    (found,) = [one for one in said["findings"] if one["rule"] == "matrix product"]
    assert found["ranks"] == [1]
    assert found["remedy"]
    if said["measured"][1]["others"] > verdicts.OTHERS:  # a busy machine, see the constructed ones
        assert found["status"] in {"warn", "fail"}
    else:
        assert (found["status"], status) == ("fail", 1)


@pytest.mark.full
def test_a_fault_is_status_0_for_those_who_want_that_and_stands_above_the_count():
    environ = clean_environ(OMP_NUM_THREADS="8")
    command = (*LAUNCHER, "--quiet", "--nproc", 1, *CHECK, "--warn-only")
    done = run("taskset", "-c", min(os.sched_getaffinity(0)), *command, environ=environ)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line]
    assert any(line.startswith("fail  threads") for line in lines)
    assert re.search(r"\d faults?$", lines[-1])
    assert "nothing is wrong" not in done.stdout


@pytest.mark.full
def test_more_ranks_than_cores_are_no_fault_where_that_was_typed():
    words = ("--nproc", len(os.sched_getaffinity(0)) + 1)
    status, said = told(*LAUNCHER, "--quiet", "--oversubscribe", *words, *CHECK, "--json")
    rules = {one["rule"] for one in said["findings"] if one["status"] == "fail"}
    assert "shared-cores" not in rules
    assert any(one["name"] == "shared-cores" for one in said["verdicts"])
    assert status == int(bool(rules))
