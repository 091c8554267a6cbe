"""The CPUs, memory and device of this rank after torch has worked, and their measured speed.

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
from typing import Any, NamedTuple

import numpy
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from spawnlaunch import __version__
from spawnlaunch.base import cpuset, reading
from spawnlaunch.bench import effort
from spawnlaunch.binding import apply, claims, placement, plan
from spawnlaunch.binding.cores import count_cores
from spawnlaunch.node import cgroup, hardware, sysfs, visible
from spawnlaunch.workers import environment
from spawnlaunch.world import identity, managers


class Facts(NamedTuple):
    """The facts of one rank. CPU lists are strings as the kernel writes them."""

    rank: int
    local_rank: int
    host: str
    pid: int
    device: int | None  # number within the node's devices in address order
    device_address: str | None
    device_cpus: str | None  # CPUs next to the device; None where unknown
    device_numa: int | None
    devices_seen: int  # that the environment shows
    cpus_at_start: str  # the mask before torch was imported
    cpus: str  # the main thread's mask afterwards
    threads: tuple[str, ...]  # the different masks of all threads, the main thread's first
    loader_cpus: str  # the mask of a DataLoader worker
    cores: int  # physical cores in the main thread's mask
    cores_of_node: int  # physical cores of the machine that are online
    numa: str  # NUMA nodes of the mask
    memory: str  # memory policy: mode and nodes
    memory_near: str  # NUMA nodes of the mask that have memory
    memory_allowed: str  # NUMA nodes that this process may allocate from; "" where unknown
    omp_threads: int  # the threads that torch computes with, or is told to, which torch may cut
    threads_by: tuple[str, ...]  # the variables that tell it to compute with more than the mask has
    launched: bool  # by this package's launcher
    given: str  # the CPUs that its launcher divides; without one, the mask at the start
    by_default: str  # the CPUs that the launcher, without flags, gives this rank of them
    default_cores: int  # the physical cores in that
    best_cores: int  # those that it would give this rank if all CPUs were allowed
    wider: str  # how to start with more of them; "" where they are all
    nearer: str  # how to start with some next to the device; "" where some are
    isolated: str  # how to start on isolated CPUs; "" where these are too few
    openmp: tuple[str, ...]  # OpenMP's variables that move threads
    typed: tuple[str, ...]  # flags of its launcher: those of binding, and --oversubscribe


class Observation(NamedTuple):
    """The system's view of this process after torch has worked; each field as in Facts."""

    host: str
    pid: int
    cpus_at_start: str
    cpus: str
    threads: tuple[str, ...]
    loader_cpus: str
    memory: str
    memory_allowed: str
    omp_threads: int  # the threads that torch computes with


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


def mask() -> frozenset[int]:
    """The CPUs of this thread; empty where the system has no masks."""
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()


def look(at_start: frozenset[int]) -> Observation:
    """Put torch to work, then look at this process."""
    loader: DataLoader[list[int]] = DataLoader(
        _Mask(),  # type: ignore[arg-type]  # it has what a map-style data set needs
        num_workers=1,
        batch_size=None,
    )
    of_loader = frozenset(int(cpu) for cpu in next(iter(loader)))
    torch.ones(512, 512) @ torch.ones(512, 512)  # starts the threads that computations run in
    now, policy = mask(), apply.memory_policy()
    return Observation(
        host=os.uname().nodename,
        pid=os.getpid(),
        cpus_at_start=cpuset.format(at_start),
        cpus=cpuset.format(now),
        threads=_thread_masks(now),
        loader_cpus=cpuset.format(of_loader),
        memory=f"{policy.mode} {cpuset.format(policy.nodes)}".strip() if policy else "unknown",
        memory_allowed=sysfs.fields("/proc/self/status", ":").get("Mems_allowed_list", ""),
        omp_threads=torch.get_num_threads(),
    )


def derive(
    node: hardware.Node, rank: int, local_rank: int, its: Observation, environ: Mapping[str, str]
) -> Facts:
    """The facts of a rank: the properties of its process, and what it could have on this node."""
    now = parsed(its.cpus)
    seen = visible.visible(node, environ)
    device = seen.device_of(local_rank)
    place = None if device is None else node.devices[device]
    local = place.local_cpus if place else None
    launched = _is_launched(environ)
    divided = environ.get(cpuset.NODE_CPUS) if launched else None
    given = parsed(its.cpus_at_start if divided is None else divided)
    there = node._replace(cpus_allowed=given)
    near = local & there.cpus_to_share if local else given
    places = [each.local_cpus for each in node.devices if each.local_cpus]
    by_default = _by_default(there, seen, local_rank, environ)
    told = placement.threads_by_variable(environ)
    usual = node.cpus_online - node.isolated or node.cpus_online
    isolated = placement.isolated_near(node, places)
    suffices = count_cores(node, isolated) >= _size(local_rank, environ)
    whole = node._replace(cpus_allowed=node.cpus_online)
    observed = its._replace(omp_threads=max(its.omp_threads, *told.values(), 0))
    return Facts(
        **observed._asdict(),
        rank=rank,
        local_rank=local_rank,
        device=device,
        device_address=place.address if place else None,
        device_cpus=None if local is None else cpuset.format(local),
        device_numa=place.numa if place else None,
        devices_seen=len(seen.devices),
        cores=count_cores(node, now),
        cores_of_node=count_cores(node, usual),
        numa=cpuset.format(each.id for each in node.numa if each.cpus & now),
        memory_near=cpuset.format(
            each.id for each in node.numa if each.cpus & now and each.memory != 0
        ),
        threads_by=tuple(name for name, number in told.items() if number > len(now)),
        launched=launched,
        given=cpuset.format(given),
        by_default=cpuset.format(by_default),
        default_cores=count_cores(node, by_default),
        best_cores=count_cores(node, _by_default(whole, seen, local_rank, environ)),
        wider="" if given >= usual else placement.wider(there, environ),
        nearer=placement.nearer(there, environ, local, places) if local and not near else "",
        isolated=f"with taskset -c {cpuset.format(isolated)}" if suffices else "",
        openmp=tuple(line.partition("=")[0] for line in placement.openmp_hazards(environ)),
        typed=tuple(environ.get(environment.TYPED, "").split()) if launched else (),
    )


def parsed(cpus: str) -> cpuset.CpuSet:
    """The CPUs of a list as Facts have it."""
    return cpuset.parse(cpus) if cpus else cpuset.EMPTY


def _by_default(
    there: hardware.Node, seen: visible.Visible, local_rank: int, environ: Mapping[str, str]
) -> cpuset.CpuSet:
    """The CPUs that the launcher gives this rank without any flag."""
    size = _size(local_rank, environ)
    task = claims.TaskView(local_rank) if len(seen.devices) == 1 < size else None
    if _is_launched(environ) and environment.MARK not in environ:
        world = identity.World(
            mode=identity.TASK, rank=local_rank, world_size=size, local_rank=local_rank,
            local_world_size=size, node_rank=None, nnodes=None, master_addr="", master_port=0,
            run_id="",
        )  # fmt: skip
        mentioned = tuple(managers.mentioned(environ))
        resolution = identity.Resolution(world, {}, (), (), environ, mentioned=mentioned)
        task = plan.view_of_task(there, resolution)
    bindings = plan.plan(there, seen, size, task=task).bindings
    return bindings[0 if task else local_rank].cpus


def _size(local_rank: int, environ: Mapping[str, str]) -> int:
    """The number of ranks on this node."""
    told = environ.get("LOCAL_WORLD_SIZE", "")
    size = int(told) if reading.is_number(told) else _tasks(environ)
    return max(size, local_rank + 1)


def _is_launched(environ: Mapping[str, str]) -> bool:
    """Whether our launcher has started this worker: torchrun sets True for its store."""
    counted = "TORCHELASTIC_RESTART_COUNT" in environ
    return counted and environ.get("TORCHELASTIC_USE_AGENT_STORE") == "False"


def _tasks(environ: Mapping[str, str]) -> int:
    """The tasks of Slurm's step on a node; `2(x3)` stands for three nodes with two tasks each."""
    tasks = environ.get("SLURM_STEP_TASKS_PER_NODE", "").partition("(")[0]
    return int(tasks) or 1 if reading.is_number(tasks) else 1


class _Mask:
    """A data set with one sample: the mask of the process that reads it."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> list[int]:
        return sorted(mask())


def _thread_masks(main: frozenset[int]) -> tuple[str, ...]:
    """The main thread's mask and every other one that a thread of this process has."""
    masks = {cpuset.format(main): None}
    try:
        threads = os.listdir("/proc/self/task")
    except OSError:
        return tuple(masks)
    for thread in threads:
        # Not asked of the kernel by number: /proc may be that of another PID namespace.
        allowed = sysfs.fields(f"/proc/self/task/{thread}/status", ":").get("Cpus_allowed_list")
        if allowed:  # or it has just ended
            masks[cpuset.format(cpuset.parse(allowed))] = None
    return tuple(masks)


# Measurements


def device_of(local_rank: int) -> torch.device:
    """The accelerator that a script takes by its local rank, else the CPU."""
    if not accelerator.is_available():
        return torch.device("cpu")
    return torch.device(local_rank % accelerator.device_count())  # a number is an accelerator's


def measure(node: hardware.Node, mine: Facts, environ: Mapping[str, str]) -> dict[str, Any]:
    """The quick measurements; `environ` has the variables as they were at the start."""
    return {
        "versions": versions(),
        "computes_on": "cpu",
        **_speed_of_cpus(),
        "nics": nics_of(node, mine.device, environ),
        "clock_s": _clock(mine.rank),
        "surroundings": _surroundings(cpuset.parse(mine.given)),
    }


def measure_all(rank: int, local_rank: int) -> dict[str, Any]:
    """The further measurements of --all."""
    device, hosts = device_of(local_rank), of_each(os.uname().nodename)
    shm = os.statvfs("/dev/shm") if os.path.isdir("/dev/shm") else None
    found: dict[str, Any] = {
        "computes_on": str(device),
        "limits": {name: _limits(number) for name, number in LIMITS.items()}
        | {"shm": (shm.f_bavail * shm.f_frsize if shm else 0, None)},
    }
    if device.type != "cpu":
        found["gflops"] = _rate(device, *_product(device)) / 1e9
    return {**found, "sums": _sums(device, rank, hosts)}


def _speed_of_cpus() -> dict[str, float]:
    """The speed of matrix products on the CPU by each thread, the best of some rounds.

    `others` is the CPU time that other processes took meanwhile, in CPUs.
    """
    device = torch.device("cpu")
    work, threads = _product(device), torch.get_num_threads()
    mine, others = 0.0, 0.0
    for _ in range(TIMES):
        busy_s, _ = effort.busy_and_stolen_s(mask())
        began, ran_s = time.perf_counter(), time.process_time()
        rate = _rate(device, *work, QUICK_S) / 1e9 / threads
        took_s, own_s = time.perf_counter() - began, time.process_time() - ran_s
        now_s, _ = effort.busy_and_stolen_s(mask())
        if rate > mine:
            mine, others = rate, max(0.0, (now_s or 0) - (busy_s or 0) - own_s) / took_s
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
    one = torch.ones(side, side, device=device, dtype=kind)
    other = torch.ones_like(one)
    return lambda: torch.mm(one, one, out=other), 2.0 * side**3


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
    found = {}
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
        found[name] = SUMS * SUMMED / (time.perf_counter() - begun) / 1e9
    return found


def _clock(rank: int) -> float:
    """The seconds by which this clock is ahead of rank 0's.

    Of several questions the one with the quickest answer counts: rank 0 answered between two looks
    at this clock, and these are least apart.
    """
    asked = torch.zeros(1, dtype=torch.float64)
    best = (float("inf"), 0.0)
    for other in range(1, dist.get_world_size()):
        for _ in range(ROUNDS):
            if rank == 0:
                dist.recv(asked, src=other)
                dist.send(torch.tensor([time.time()], dtype=torch.float64), dst=other)
            elif rank == other:
                before = time.time()
                dist.send(asked, dst=0)
                dist.recv(asked, src=0)
                after = time.time()
                best = min(best, (after - before, (before + after) / 2 - float(asked)))
    return best[1]


def _limits(number: int) -> tuple[int | None, int | None]:
    """The soft and the hard limit; None: there is no limit."""
    soft, hard = (None if n == resource.RLIM_INFINITY else n for n in resource.getrlimit(number))
    return soft, hard


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
