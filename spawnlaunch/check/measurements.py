"""The measured speed, software, limits and network of this rank.

All ranks measure at the same time, as they work at the same time. The results are plain values, for
JSON and for `rules`, which judge.

Sources: proc(5) for loadavg and stat; sched-bwc.rst and cgroup-v2.rst for a quota of CPU time.
A value that cannot be read is not known, and there is no verdict on it.
"""

import os
import platform
import resource
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median_high
from typing import Any

import numpy
import torch
import torch.distributed as dist

from spawnlaunch import __version__
from spawnlaunch.base import cpuset, reading
from spawnlaunch.bench import effort
from spawnlaunch.check import facts
from spawnlaunch.node import cgroup, hardware

FOR_S = 1.0  # of each measurement
QUICK_S = 0.25  # of the measurement that is always made
TIMES = 4  # that it is made again while a rank is slow: a moment's disturbance is no fault
SLOW = 0.8  # of the usual speed: such a rank holds up all others
CPU_SIDE, DEVICE_SIDE = 512, 8192  # of the matrices that are multiplied
SUMMED = 16 << 20  # bytes that are added up over ranks
SUMS = 5
ROUNDS = 8  # of questions for the time
WITHIN, BETWEEN = "within the node", "between nodes"  # names of sums
# Variables that name adapters or interfaces: for NCCL, gloo, and torch's RPC.
NETWORK = ("NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
RUNNING = ("up", "unknown")  # of operstate
LIMITS = {
    "memlock": resource.RLIMIT_MEMLOCK, "nofile": resource.RLIMIT_NOFILE,
    "nproc": resource.RLIMIT_NPROC,
}  # fmt: skip
DRIVERS = ("nvidia", "amdgpu", "mlx5_core")
# Came with torch 2.6; torch.cuda has the functions of it that are called here.
accelerator: Any = getattr(torch, "accelerator", torch.cuda)


def device_of(local_rank: int) -> torch.device:
    """The accelerator that a script takes by its local rank, else the CPU."""
    if not accelerator.is_available():
        return torch.device("cpu")
    return torch.device(local_rank % accelerator.device_count())  # a number is an accelerator's


def measure(node: hardware.Node, mine: facts.Facts, environ: Mapping[str, str]) -> dict[str, Any]:
    """The quick measurements; `environ` has the variables as they were at the start."""
    return {
        "versions": versions(),
        "computes_on": "cpu",
        **_speed_of_cpus(),
        "nics": nics_of(node, mine.device, environ),
        "clock_s": _clock(mine.rank),
        "surroundings": _surroundings(cpuset.parse(mine.divided_cpus)),
    }


def measure_all(rank: int, local_rank: int) -> dict[str, Any]:
    """The further measurements of --all."""
    device, hosts = device_of(local_rank), of_each(os.uname().nodename)
    shm = os.statvfs("/dev/shm") if os.path.isdir("/dev/shm") else None
    limits = {name: resource.getrlimit(number) for name, number in LIMITS.items()}
    limits_or_none: dict[str, Any] = {  # soft and hard; None: there is no limit
        name: tuple(None if n == resource.RLIM_INFINITY else n for n in pair)
        for name, pair in limits.items()
    }
    limits_or_none["shm"] = (shm.f_bavail * shm.f_frsize if shm else 0, None)
    measurements: dict[str, Any] = {"computes_on": str(device), "limits": limits_or_none}
    if device.type != "cpu":
        measurements["gflops"] = _rate(device, *_product(device)) / 1e9
    return {**measurements, "sums": _sums(device, rank, hosts)}


def _speed_of_cpus() -> dict[str, float]:
    """The speed of matrix products on the CPU by each thread, the best of some rounds.

    `others` is the CPU time that other processes took meanwhile, in CPUs.
    """
    device = torch.device("cpu")
    work, threads = _product(device), torch.get_num_threads()
    mine, others = 0.0, 0.0
    for _ in range(TIMES):
        busy_s, _ = effort.busy_and_stolen_s(facts.mask())
        began, ran_s = time.perf_counter(), time.process_time()
        rate = _rate(device, *work, QUICK_S) / 1e9 / threads
        took_s, used_s = time.perf_counter() - began, time.process_time() - ran_s
        now_s, _ = effort.busy_and_stolen_s(facts.mask())
        if rate > mine:
            mine, others = rate, max(0.0, (now_s or 0) - (busy_s or 0) - used_s) / took_s
        everyone = of_each(mine)
        if min(everyone) >= SLOW * median_high(everyone):
            break
    return {"gflops": mine * threads, "gflops_per_thread": mine, "others": others}


def _surroundings(cpus: cpuset.CpuSet) -> dict[str, Any]:
    """The load and the quota around a rank that may use these CPUs.

    The quota is in CPUs; None: there is none.
    """
    return {
        "cpus": len(cpus) or os.cpu_count(),
        "load": os.getloadavg()[0],
        "quota_cpus": min((each.cpus for each in cgroup.read_quotas()), default=None),
    }


def versions() -> dict[str, str]:
    """The versions of software that must be equal on all ranks."""
    nccl: tuple[int, ...] = ()
    if dist.is_nccl_available() and torch.version.cuda:
        nccl = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
    drivers = {name: reading.file_text(f"/sys/module/{name}/version") for name in DRIVERS}
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "spawnlaunch": __version__,
        "CUDA of torch": torch.version.cuda or "none",
        "HIP of torch": torch.version.hip or "none",
        "NCCL": ".".join(map(str, nccl)) or "none",
        "drivers": " ".join(f"{n} {v.strip()}" for n, v in drivers.items() if v) or "none",
    }


def _product(device: torch.device) -> tuple[Callable[[], object], float]:
    """A matrix product that can be repeated, and its floating-point operations."""
    on_cpu = device.type == "cpu"
    side, kind = (CPU_SIDE, torch.float32) if on_cpu else (DEVICE_SIDE, torch.bfloat16)
    matrix = torch.ones(side, side, device=device, dtype=kind)
    product = torch.ones_like(matrix)
    return lambda: torch.mm(matrix, matrix, out=product), 2.0 * side**3


def _rate(
    device: torch.device, work: Callable[[], object], each: float, for_s: float = FOR_S
) -> float:
    """Operations or bytes per second, measured while all ranks work."""
    for _ in range(2):
        work()
    _wait_for(device)
    dist.barrier()
    begun, done = time.perf_counter(), 0
    while time.perf_counter() < begun + for_s:
        work()
        done += 1
        _wait_for(device)
    return each * done / (time.perf_counter() - begun)


def _wait_for(device: torch.device) -> None:
    if device.type != "cpu":
        accelerator.synchronize(device)


def _sums(device: torch.device, rank: int, hosts: Sequence[str]) -> dict[str, float]:
    """The GB/s of an all-reduce: among the ranks of a node, and among one rank of each node."""
    of_host = {host: [n for n, each in enumerate(hosts) if each == host] for host in hosts}
    groups = [*((WITHIN, ranks) for ranks in of_host.values()),
              (BETWEEN, [ranks[0] for ranks in of_host.values()])]  # fmt: skip
    backend = dist.Backend.default_device_backend_map[device.type]
    rates = {}
    for name, ranks in groups:  # every rank has to make every group
        group = dist.new_group(ranks, backend=backend)
        if rank not in ranks or len(ranks) < 2:
            continue
        numbers = torch.zeros(SUMMED // 4, device=device)
        dist.all_reduce(numbers, group=group)
        _wait_for(device)
        begun = time.perf_counter()
        for _ in range(SUMS):
            dist.all_reduce(numbers, group=group)
        _wait_for(device)
        rates[name] = SUMS * SUMMED / (time.perf_counter() - begun) / 1e9
    return rates


def _clock(rank: int) -> float:
    """The seconds by which this clock is ahead of rank 0's.

    Of several questions the one with the quickest answer counts: rank 0 answered between two looks
    at this clock, and these are least apart.
    """
    message = torch.zeros(1, dtype=torch.float64)
    best = (float("inf"), 0.0)
    for other in range(1, dist.get_world_size()):
        for _ in range(ROUNDS):
            if rank == 0:
                dist.recv(message, src=other)
                dist.send(torch.tensor([time.time()], dtype=torch.float64), dst=other)
            elif rank == other:
                before = time.time()
                dist.send(message, dst=0)
                dist.recv(message, src=0)
                after = time.time()
                best = min(best, (after - before, (before + after) / 2 - float(message)))
    return best[1]


def nics_of(node: hardware.Node, number: int | None, environ: Mapping[str, str]) -> dict[str, Any]:
    """The adapters, those next to the device first, and the settings of NCCL for them."""
    home = node.devices[number].numa if number is not None else None
    near = [nic.name for nic in node.nics if home is not None and nic.numa == home]
    return {
        "all": [nic.name for nic in node.nics],
        "near": near,
        "links": sorted(_links()),
        "interfaces": interfaces(),
        **{name: environ.get(name) for name in NETWORK},
    }


def interfaces() -> list[str]:
    """All interfaces of this machine."""
    return [name for _, name in socket.if_nameindex()]


def _links() -> list[str]:
    """The interfaces of the network, but for the loopback and those that are known to be down.

    Drivers that report no state, as of tun and WireGuard, have the state "unknown", and carry
    traffic all the same (operstates.rst).
    """
    states = {
        name: reading.file_text(f"/sys/class/net/{name}/operstate") or "unknown"
        for name in interfaces()
    }
    return [name for name, its in states.items() if name != "lo" and its.strip() in RUNNING]


def of_each(mine: Any) -> list[Any]:
    """The values of all ranks, in their order."""
    box: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(box, mine)
    return box
