"""No remedy is given where it was followed already.

ROWS has, for each text that the code can give, who is told it and who has followed it. Those about
masks and OpenMP are in tests/binding, test_advice and test_show.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from spawnlaunch.bench.agree import note_on_bound_ranks, note_on_hidden_devices
from spawnlaunch.check import rules
from spawnlaunch.workers import environment
from tests.check.test_findings import GOOD
from tests.check.test_preflight import LIMITS, rank
from tests.support.slurm_variables import OF_A_SHELL, OF_A_TASK

JOB = OF_A_SHELL | {"SLURM_CPUS_ON_NODE": "1", "SLURM_JOB_CPUS_PER_NODE": "1(x2)"}
STEP = JOB | OF_A_TASK
BOUND = {"SLURM_CPU_BIND_TYPE": "mask_cpu:", "SLURM_CPU_BIND_LIST": "0x1,0x2"}
UNBOUND = {"SLURM_CPU_BIND_TYPE": "none", "SLURM_CPU_BIND_LIST": ""}


def shared(*ranks: Any) -> str:
    return rules.remedy_of_shared(ranks, ranks)


def narrow(*ranks: Any) -> str:
    return rules.remedy_of_narrow(ranks)


SMALL = GOOD._replace(divided_cpus="0", by_default="0", default_cores=1, wider="with X")
ISOLATED = GOOD._replace(isolated="with Z")
MOVED = GOOD._replace(cpus="3", openmp=("OMP_PLACES",))
KMP = GOOD._replace(cpus="0", openmp=("KMP_AFFINITY",), omp_threads=8)
WITHOUT_KMP = KMP._replace(openmp=(), threads_by=("OMP_NUM_THREADS",))
OURS = GOOD._replace(launched=True, typed=("--bind",))
UNTYPED = OURS._replace(typed=())
MKL = GOOD._replace(threads_by=("MKL_NUM_THREADS",))
OTHER = {"by_default": "8-15"}
NICS = rank(0)["nics"]
OLDER = rank(0)["versions"] | {"torch": "2.12.0"}


def together(facts: Any) -> str:
    """For two ranks on one device."""
    found = rules.of_bindings([facts, facts._replace(rank=1)])
    return next(one.remedy for one in found if one.name == "shared-device")


def measured(**other: Any) -> str:
    """For a rank that has measured this, beside two that are as they should be."""
    found = rules.of_measured([rank(0), rank(1), rank(2, **other)])
    return "; ".join(one.remedy for one in found if one.status not in ("ok", "note"))


def limited(**limits: Any) -> str:
    return measured(limits=LIMITS | limits)


class Row(NamedTuple):
    """A remedy, who is told it, and who has followed it."""

    words: str
    told: Callable[[], str]
    followed: Callable[[], str]


ROWS = [
    # Under Slurm, and under a launcher of ours.
    Row("srun --cpu-bind=none", lambda: note_on_bound_ranks(BOUND),
        lambda: note_on_bound_ranks(UNBOUND)),
    Row("without what binds", lambda: note_on_bound_ranks({}),
        lambda: note_on_bound_ranks(BOUND)),
    Row("one launcher per node", lambda: note_on_hidden_devices(STEP),
        lambda: note_on_hidden_devices(STEP | {environment.MARK: "1.0"})),
    Row("one launcher per node", lambda: note_on_hidden_devices({}),
        lambda: note_on_hidden_devices({environment.MARK: "1.0"})),
    Row("--virtual-local-rank", lambda: note_on_hidden_devices({environment.MARK: "1.0"}),
        lambda: note_on_hidden_devices({})),
    # OpenMP.
    Row("unset OMP_PLACES", lambda: rules.remedy_of_drift(MOVED),
        lambda: rules.remedy_of_drift(MOVED._replace(openmp=()))),
    Row("look for a library", lambda: rules.remedy_of_drift(GOOD),
        lambda: rules.remedy_of_drift(MOVED)),
    Row("set it to disabled", lambda: rules.remedy_of_threads(KMP),
        lambda: rules.remedy_of_threads(WITHOUT_KMP)),
    # Findings.
    Row("unset", lambda: shared(MOVED, MOVED), lambda: shared(GOOD, GOOD)),
    Row("which has fewer cores", lambda: shared(*[GOOD] * 17), lambda: shared(*[GOOD] * 2)),
    Row("spawnlaunch", lambda: shared(GOOD, GOOD._replace(**OTHER)),
        lambda: shared(OURS, OURS._replace(**OTHER))),
    Row("spawnlaunch", lambda: shared(GOOD, GOOD._replace(**OTHER)),
        lambda: shared(SMALL, SMALL)),
    Row("leave --bind out", lambda: shared(OURS, OURS._replace(**OTHER)),
        lambda: shared(UNTYPED, UNTYPED._replace(**OTHER))),
    Row("leave --bind", lambda: shared(OURS, OURS._replace(**OTHER)),
        lambda: shared(*[SMALL._replace(launched=True, typed=("--bind",))] * 2)),
    Row("or with X", lambda: shared(SMALL, SMALL), lambda: shared(*[SMALL._replace(wider="")] * 2)),
    Row("or with Z", lambda: shared(*[ISOLATED] * 17), lambda: shared(*[GOOD] * 17)),
    Row("or with Z", lambda: shared(ISOLATED, ISOLATED),
        lambda: shared(*[ISOLATED._replace(wider="with X")] * 2)),
    Row("few cores are next to", lambda: shared(GOOD, GOOD),
        lambda: shared(GOOD, GOOD._replace(**OTHER))),
    Row("unset", lambda: narrow(MOVED), lambda: narrow(SMALL)),
    Row("leave --threads and --reserve-cpus out",
        lambda: narrow(OURS._replace(typed=("--reserve-cpus", "--threads", "--smt"))),
        lambda: narrow(OURS)),
    Row("leave --bind", lambda: narrow(OURS),
        lambda: narrow(SMALL._replace(launched=True, typed=("--bind",)))),
    Row("leave --bind", lambda: narrow(OURS, OURS._replace(**OTHER)),
        lambda: narrow(OURS, OURS)),  # whom the default gives the same cores
    Row("with X", lambda: narrow(SMALL), lambda: narrow(SMALL._replace(wider=""))),
    Row("start fewer", lambda: narrow(SMALL._replace(wider="")), lambda: narrow(OURS)),
    Row("unset", lambda: rules.remedy_of_remote(MOVED), lambda: rules.remedy_of_remote(GOOD)),
    Row("with Y", lambda: rules.remedy_of_remote(GOOD._replace(nearer="with Y")),
        lambda: rules.remedy_of_remote(GOOD)),
    Row("spawnlaunch", lambda: rules.remedy_of_remote(GOOD),
        lambda: rules.remedy_of_remote(OURS)),
    Row("leave --bind", lambda: rules.remedy_of_remote(OURS),
        lambda: rules.remedy_of_remote(OURS._replace(nearer="with Y"))),
    Row("leave --bind", lambda: rules.remedy_of_remote(OURS),
        lambda: rules.remedy_of_remote(UNTYPED)),
    Row("--oversubscribe", lambda: together(OURS), lambda: together(GOOD)),
    Row("spawnlaunch", lambda: together(GOOD), lambda: together(OURS)),
    Row("leave --mem-bind out",
        lambda: rules.remedy_of_far_memory(OURS._replace(typed=("--mem-bind",)), False),
        lambda: rules.remedy_of_far_memory(OURS, False)),
    Row("--mem-bind preferred", lambda: rules.remedy_of_far_memory(OURS, False),
        lambda: rules.remedy_of_far_memory(OURS._replace(typed=("--mem-bind",)), False)),
    Row("--localalloc", lambda: rules.remedy_of_far_memory(GOOD, False),
        lambda: rules.remedy_of_far_memory(OURS, False)),
    Row("(cpuset.mems)", lambda: rules.remedy_of_far_memory(GOOD, True),
        lambda: rules.remedy_of_far_memory(GOOD, False)),
    Row("OMP_NUM_THREADS=8", lambda: rules.remedy_of_threads(GOOD),
        lambda: rules.remedy_of_threads(MKL)),
    Row("unset MKL_NUM_THREADS, or", lambda: rules.remedy_of_threads(MKL), lambda: ""),
    # What was measured.
    Row("the same on all nodes", lambda: measured(versions=OLDER), measured),
    Row("hot or capped", lambda: measured(gflops=1.0), lambda: measured(gflops_per_thread=1.0)),
    Row("other processes there (top)", lambda: measured(gflops_per_thread=1.0), measured),
    Row("compare its wiring", lambda: measured(sums={"within the node": 20.0}), measured),
    Row("let chrony or ntpd run", lambda: measured(clock_s=7.0), measured),
    Row("name one of mlx5_0", lambda: measured(nics=NICS | {"NCCL_IB_HCA": "mlx4"}), measured),
    Row("unset NCCL_IB_HCA", lambda: measured(nics=NICS | {"NCCL_IB_HCA": "x", "all": []}),
        measured),
    Row("--shm-size=8g", lambda: limited(shm=(1 << 26, None)),
        lambda: limited(shm=(8 << 30, None))),
    Row("ulimit -n 65536", lambda: limited(nofile=(1024, 1 << 20)),
        lambda: limited(nofile=(1024, 1024))),
    Row("limits.conf", lambda: limited(nproc=(99, 99)), lambda: limited(nproc=(99, None))),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.words)
def test_a_remedy_is_given_until_it_was_followed(row: Row) -> None:
    assert row.words in row.told()
    assert row.words not in row.followed()
