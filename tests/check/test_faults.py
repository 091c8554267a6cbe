"""Faults set on purpose: each is named with its ranks and is status 1; healthy jobs have none."""

import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from spawnlaunch.base import cpuset
from spawnlaunch.check import rules
from spawnlaunch.check.facts import Facts
from spawnlaunch.check.rules import FAIL, WARN, Verdict
from tests.check.test_check import told
from tests.check.test_findings import GOOD
from tests.check.test_preflight import rank as measured
from tests.support.launching import LAUNCHER, clean_environ, run

CHECK = ("-m", "spawnlaunch.check")
HEALTHY_JOBS = 50


class Job(NamedTuple):
    """What the ranks of a job have told."""

    facts: list[Facts]
    measured: list[dict[str, Any]]

    def but(self, rank: int, **other: Any) -> "Job":
        """With a rank of other facts."""
        facts = [one._replace(**other) if one.rank == rank else one for one in self.facts]
        return self._replace(facts=facts)

    def faults(self) -> list[Verdict]:
        found = [*rules.of_bindings(self.facts), *rules.of_measured(self.measured)]
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
            visible_devices=local if has_devices else 0,
            cpus=cpus, cpus_at_start=cpus, threads=(cpus,), loader_cpus=cpus, cores=cores,
            cores_of_node=cores * local, numa=str(home), memory=memory, memory_near=str(home),
            memory_allowed=f"0-{numa - 1}", divided_cpus=f"0-{width * local - 1}",
            by_default=cpus, default_cores=cores, best_cores=cores,
            omp_threads=rng.randint(1, width), launched=rng.random() < 0.5,
        ))  # fmt: skip
        noise = rng.uniform(0.85, 1)
        ranks.append(measured(rank, host=f"node{host}", gflops_per_thread=40 * noise,
                              clock_s=rng.uniform(-0.5, 0.5)))  # fmt: skip
    return Job(facts, ranks)


def elsewhere(numbers: str) -> str:
    """A node of memory behind these."""
    return str(int(numbers) + 1)


# What a rank has at fault, by the rule that finds it; the other one is of the same host.
NOTHING = {"device": None, "device_address": None, "device_cpus": None, "device_numa": None}
SET: list[tuple[str, Callable[[Facts, Facts], dict[str, Any]]]] = [
    ("shared-device", lambda _, other: {
        "device": other.device, "device_address": other.device_address, "device_cpus": None}),
    ("no-device", lambda *_: {**NOTHING, "visible_devices": 0}),
    ("threads", lambda mine, _: {"omp_threads": 2 * len(cpuset.parse(mine.cpus))}),
    ("far-memory", lambda mine, _: {"memory": f"bind {elsewhere(mine.memory_near)}"}),
    ("far-memory", lambda mine, _: {"memory": f"interleave {elsewhere(mine.memory_near)}"}),
    ("far-memory", lambda mine, _: {
        "memory": "default", "memory_allowed": elsewhere(mine.numa)}),
    ("shared-cores", lambda _, other: {
        "cpus": other.cpus, "cpus_at_start": other.cpus, "threads": (other.cpus,),
        "loader_cpus": other.cpus, "device_cpus": None, "memory": "default"}),
    ("remote", lambda *_: {"device_cpus": "900-907", "device_numa": 9}),
    ("drift", lambda mine, _: {"loader_cpus": mine.cpus.split("-")[0]}),
    ("drift", lambda mine, _: {
        "cpus": mine.cpus.split("-")[0], "threads": (mine.cpus.split("-")[0],), "omp_threads": 1}),
    ("drift", lambda mine, _: {"threads": ("", mine.cpus.split("-")[0])}),
]  # fmt: skip


def set_fault(seed: int, change: Callable[[Facts, Facts], dict[str, Any]]) -> tuple[Job, int]:
    """A job whose ranks have devices, with this fault on one that is not the only one of a host."""
    rng = random.Random(seed)
    while True:
        job = healthy(rng)
        rank = rng.randrange(1, len(job.facts))  # what rank 0 has is what others are compared with
        mine = job.facts[rank]
        others = [one for one in job.facts if one.host == mine.host and one.rank != rank]
        if others and mine.visible_devices:
            return job.but(rank, **change(mine, others[0])), rank


@pytest.mark.parametrize("seed", range(HEALTHY_JOBS))
def test_a_healthy_job_has_no_fault(seed: int):
    assert healthy(random.Random(seed)).faults() == []


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("rule", "change"), SET)
def test_a_fault_is_named_with_its_rank_and_fails(
    rule: str, change: Callable[[Facts, Facts], dict[str, Any]], seed: int
):
    job, rank = set_fault(seed, change)
    found = [one for one in job.faults() if one.name == rule]
    assert [one.status for one in found] == [FAIL]
    assert f"rank {rank}" in found[0].message or rank in found[0].ranks
    assert found[0].remedy


@pytest.mark.parametrize(("rule", "change"), [row for row in SET if row[0].startswith("shared")])
def test_what_oversubscribe_asked_for_is_no_fault(
    rule: str, change: Callable[[Facts, Facts], dict[str, Any]]
):
    job, _ = set_fault(1, change)
    meant = [one._replace(typed=("--oversubscribe",)) for one in job.facts]
    assert not [one for one in job._replace(facts=meant).faults() if one.name == rule]


def test_a_rank_beside_others_is_slow_and_at_fault_only_where_it_is_very_slow():
    job = healthy(random.Random(3))
    for rate, others, status in ((16.0, 0.0, FAIL), (16.0, 0.9, WARN), (27.0, 0.0, WARN)):
        slow = {**job.measured[1], "gflops_per_thread": rate, "others": others}
        (found,) = job._replace(measured=[job.measured[0], slow, *job.measured[2:]]).faults()
        assert (found.status, found.ranks) == (status, (1,))


def test_what_is_around_a_rank_is_noted_and_no_fault():
    job = healthy(random.Random(4))
    around = {**job.measured[0]["surroundings"], "load": 300.0, "quota_cpus": 1.5}
    found = rules.of_measured([{**one, "surroundings": around} for one in job.measured])
    notes = {one.name for one in found if one.status == "note"}
    assert notes == {"load", "CPU quota"}
    assert not [one for one in found if one.status in (WARN, FAIL)]


# Real workers, of which rank 1 has another clock

AT_FAULT = """
import os, sys, time
now = time.time
if os.environ.get("RANK") == "1" and "spawnlaunch.check" in sys.orig_argv:
    time.time = lambda: now() + 7
"""


@pytest.mark.full
def test_a_fault_of_a_real_worker_is_named(tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text(AT_FAULT)
    path = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}:{Path(__file__).parents[2]}"
    command = (*LAUNCHER, "--quiet", "--nproc", 2, *CHECK, "--json")
    status, said = told("env", f"PYTHONPATH={path}", *command)
    found = [one for one in said["verdicts"] if one["name"] == "clocks"]
    assert [one["status"] for one in found][:1] == ["fail"], said["verdicts"]
    assert found[0]["ranks"] == [1]
    assert found[0]["remedy"]
    assert status == 1


@pytest.mark.full
def test_a_fault_is_status_0_for_those_who_want_that_and_stands_above_the_count():
    environ = clean_environ(OMP_NUM_THREADS="8")
    command = (*LAUNCHER, "--quiet", "--nproc", 1, *CHECK, "--warn-only")
    done = run("taskset", "-c", min(os.sched_getaffinity(0)), *command, environ=environ)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line]
    assert any(line.startswith("fail  threads") for line in lines)
    assert re.search(r"\d faults?$", lines[-1])
    assert "No problems found." not in done.stdout
