"""No remedy is given where it was followed already.

ROWS has, for each text that the code can give, who is told it and who has followed it. Those about
masks and OpenMP are in tests/binding, test_advice and test_show.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from spawnlaunch.bench import agree
from spawnlaunch.check import remedies
from spawnlaunch.run import environment
from tests.check.test_findings import GOOD
from tests.support.slurm_variables import OF_A_SHELL, OF_A_TASK

JOB = OF_A_SHELL | {"SLURM_CPUS_ON_NODE": "1", "SLURM_JOB_CPUS_PER_NODE": "1(x2)"}
STEP = JOB | OF_A_TASK
BOUND = {"SLURM_CPU_BIND_TYPE": "mask_cpu:", "SLURM_CPU_BIND_LIST": "0x1,0x2"}
UNBOUND = {"SLURM_CPU_BIND_TYPE": "none", "SLURM_CPU_BIND_LIST": ""}


def shared(*ranks: Any) -> str:
    return remedies.of_shared(ranks, ranks)


def narrow(rank: Any) -> str:
    return remedies.of_narrow([rank], [rank])


SMALL = GOOD._replace(given="0", given_cores=1, wider="with X")
MOVED = GOOD._replace(cpus="3", openmp=("OMP_PLACES",))
OURS = GOOD._replace(launched=True)
TMP, HOME = "temporary files", "working directory"
CUDA = {"device": "cuda:0", "versions": {"HIP of torch": "none"}, "host": "a"}
HIP = CUDA | {"versions": {"HIP of torch": "7.0"}}
CPU, XPU = CUDA | {"device": "cpu"}, CUDA | {"device": "xpu:0"}
LITTLE = {"shm_size": 1 << 26, "container": "Docker", "hard": {"nofile": 1 << 20, "nproc": 99.0}}
BARE = LITTLE | {"container": ""}
LOW = BARE | {"hard": {"nofile": 512.0, "nproc": 99.0}}


class Row(NamedTuple):
    """A remedy, who is told it, and who has followed it."""

    words: str
    told: Callable[[], str]
    followed: Callable[[], str]


ROWS = [
    # Under Slurm, and under a launcher of ours.
    Row("srun --cpu-bind=none", lambda: agree.own_cpus(BOUND), lambda: agree.own_cpus(UNBOUND)),
    Row("without what binds", lambda: agree.own_cpus({}), lambda: agree.own_cpus(BOUND)),
    Row("one launcher per node", lambda: agree.own_devices(STEP),
        lambda: agree.own_devices(STEP | {environment.MARK: "1.0"})),
    Row("one launcher per node", lambda: agree.own_devices({}),
        lambda: agree.own_devices({environment.MARK: "1.0"})),
    Row("--virtual-local-rank", lambda: agree.own_devices({environment.MARK: "1.0"}),
        lambda: agree.own_devices({})),
    # OpenMP.
    Row("unset OMP_PLACES", lambda: remedies.of_drift(MOVED),
        lambda: remedies.of_drift(MOVED._replace(openmp=()))),
    Row("look for a library", lambda: remedies.of_drift(GOOD), lambda: remedies.of_drift(MOVED)),
    # Findings.
    Row("unset", lambda: shared(MOVED, MOVED), lambda: shared(GOOD, GOOD)),
    Row("which has fewer cores", lambda: shared(*[GOOD] * 17), lambda: shared(*[GOOD] * 2)),
    Row("python -m spawnlaunch", lambda: shared(GOOD, GOOD), lambda: shared(OURS, OURS)),
    Row("python -m spawnlaunch", lambda: shared(GOOD, GOOD), lambda: shared(SMALL, SMALL)),
    Row("leave --bind", lambda: shared(OURS, OURS),
        lambda: shared(*[SMALL._replace(launched=True)] * 2)),
    Row("or with X", lambda: shared(SMALL, SMALL), lambda: shared(*[SMALL._replace(wider="")] * 2)),
    Row("few cores are next to", lambda: shared(*[GOOD] * 9), lambda: shared(*[GOOD] * 8)),
    Row("unset", lambda: narrow(MOVED), lambda: narrow(SMALL)),
    Row("leave --bind, --threads", lambda: narrow(OURS),
        lambda: narrow(SMALL._replace(launched=True))),
    Row("with X", lambda: narrow(SMALL), lambda: narrow(SMALL._replace(wider=""))),
    Row("start fewer", lambda: narrow(SMALL._replace(wider="")), lambda: narrow(OURS)),
    Row("unset", lambda: remedies.of_remote(MOVED), lambda: remedies.of_remote(GOOD)),
    Row("with Y", lambda: remedies.of_remote(GOOD._replace(nearer="with Y")),
        lambda: remedies.of_remote(GOOD)),
    Row("python -m spawnlaunch", lambda: remedies.of_remote(GOOD),
        lambda: remedies.of_remote(OURS)),
    Row("leave --bind", lambda: remedies.of_remote(OURS),
        lambda: remedies.of_remote(OURS._replace(nearer="with Y"))),
    Row("--oversubscribe", lambda: remedies.of_shared_device(OURS),
        lambda: remedies.of_shared_device(GOOD)),
    Row("python -m spawnlaunch", lambda: remedies.of_shared_device(GOOD),
        lambda: remedies.of_shared_device(OURS)),
    Row("leave --mem-bind out", lambda: remedies.of_far_memory(OURS, False),
        lambda: remedies.of_far_memory(GOOD, False)),
    Row("--localalloc", lambda: remedies.of_far_memory(GOOD, False),
        lambda: remedies.of_far_memory(OURS, False)),
    Row("(cpuset.mems)", lambda: remedies.of_far_memory(GOOD, True),
        lambda: remedies.of_far_memory(GOOD, False)),
    Row("OMP_NUM_THREADS=8", lambda: remedies.of_threads(GOOD), lambda: ""),
    # What was measured.
    Row("the same on all nodes", lambda: remedies.of_versions([CUDA, HIP | {"host": "b"}]),
        lambda: remedies.of_versions([CUDA, HIP])),
    Row("the same Python", lambda: remedies.of_versions([CUDA, HIP]),
        lambda: remedies.of_versions([CUDA, HIP | {"host": "b"}])),
    Row("nvidia-smi", lambda: remedies.of_slow(CUDA), lambda: remedies.of_slow(HIP)),
    Row("hot or capped", lambda: remedies.of_slow(XPU), lambda: remedies.of_slow(CPU)),
    Row("top", lambda: remedies.of_slow(CPU), lambda: ""),
    Row("nvidia-smi topo", lambda: remedies.of_wiring(CUDA), lambda: remedies.of_wiring(HIP)),
    Row("(top)", lambda: remedies.of_wiring(CPU), lambda: remedies.of_wiring(CUDA)),
    Row("name one of", lambda: remedies.of_network("NCCL_IB_HCA", ["mlx5_0"]),
        lambda: remedies.of_network("NCCL_IB_HCA", [])),
    Row("unset NCCL_IB_HCA", lambda: remedies.of_network("NCCL_IB_HCA", []), lambda: ""),
    Row("let chrony", lambda: remedies.of_clock({}),
        lambda: remedies.of_clock({"clock_daemon": "chronyd"})),
    Row("chronyd runs", lambda: remedies.of_clock({"clock_daemon": "chronyd"}),
        lambda: remedies.of_clock({"clock_daemon": ""})),
    Row("set TMPDIR to another place than /tmp",
        lambda: remedies.of_disk(TMP, {"place": "/tmp"}, True),
        lambda: remedies.of_disk(TMP, {"place": "/scratch"}, True)),
    Row("make room", lambda: remedies.of_disk(HOME, {}, True),
        lambda: remedies.of_disk(HOME, {}, False)),
    Row("can be written", lambda: remedies.of_disk(HOME, {"error": "X"}, False),
        lambda: remedies.of_disk(HOME, {}, False)),
    Row("shm-size", lambda: remedies.of_limits(LITTLE, "shm_free", 1),
        lambda: remedies.of_limits(LITTLE | {"shm_size": 8 << 30}, "shm_free", 1)),
    Row("shm-size", lambda: remedies.of_shm(LITTLE), lambda: remedies.of_shm(BARE)),
    Row("emptyDir", lambda: remedies.of_shm(LITTLE | {"container": "Kubernetes"}),
        lambda: remedies.of_shm(LITTLE)),
    Row("remount,size=8G", lambda: remedies.of_shm(BARE),
        lambda: remedies.of_shm(BARE | {"shm_size": 8 << 30})),
    Row("mount -t tmpfs", lambda: remedies.of_shm(BARE | {"shm_size": 0}),
        lambda: remedies.of_shm(BARE)),
    Row("remove what other", lambda: remedies.of_shm(BARE | {"shm_size": 8 << 30}),
        lambda: remedies.of_shm(BARE)),
    Row("ulimit -n 65536", lambda: remedies.of_limits(BARE, "nofile", 4096),
        lambda: remedies.of_limits(LOW, "nofile", 4096)),
    Row("docker run --ulimit nofile=65536",
        lambda: remedies.of_limits(LOW | {"container": "Docker"}, "nofile", 4096),
        lambda: remedies.of_limits(LITTLE, "nofile", 4096)),
    Row("limits.conf", lambda: remedies.of_limits(LOW, "nproc", 4096),
        lambda: remedies.of_limits(LOW | {"hard": {"nproc": None}}, "nproc", 4096)),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.words)
def test_a_remedy_is_given_until_it_was_followed(row: Row) -> None:
    assert row.words in row.told()
    assert row.words not in row.followed()
