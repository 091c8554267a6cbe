"""What is measured on this rank: its software, speed and clock; with --all device, disks, limits.

All ranks measure at the same time, as they work at the same time. The result is plain values, for
JSON and for `verdicts`, which judges.
"""

import os
import platform
import resource
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from spawnlaunch import __version__, cpuset, reading
from spawnlaunch.check import facts, site, surroundings, verdicts
from spawnlaunch.node import hardware

MIB = 1 << 20
FOR_S = 1.0  # of each measurement
QUICK_S = 0.25  # of the one that is always made
TIMES = 4  # that it is made again while a rank is slow: what slows it for a moment is no fault
CPU_SIDE, DEVICE_SIDE = 512, 8192  # of the matrices that are multiplied
CPU_COPY, DEVICE_COPY = 64 * MIB, 1024 * MIB  # larger than any cache
SUMMED = 16 * MIB  # bytes that are added up over ranks
SUMS = 5
FILE = 64 * MIB
ROUNDS = 8  # of questions for the time
CLOCK_DAEMONS = ("chronyd", "ntpd", "systemd-timesyn")  # the kernel keeps 15 characters of a name
# What names adapters or interfaces: for NCCL, gloo, and torch's RPC.
NETWORK = ("NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
RUNNING = ("up", "unknown")  # of operstate
DRIVERS = ("nvidia", "amdgpu", "mlx5_core")
# Came with torch 2.6; torch.cuda has the functions of it that are called here.
accelerator: Any = getattr(torch, "accelerator", torch.cuda)


def device_of(local_rank: int) -> torch.device:
    """The accelerator that a script takes by its local rank, else the CPU."""
    if not accelerator.is_available():
        return torch.device("cpu")
    return torch.device(local_rank % accelerator.device_count())  # a number is an accelerator's


def measure(node: hardware.Node, mine: facts.Facts, environ: Mapping[str, str]) -> dict[str, Any]:
    """What takes no time; `environ` has the variables as they were at the start."""
    return {
        "rank": mine.rank,
        "host": mine.host,
        "versions": versions(),
        "device": "cpu",
        **_speed_of_cpus(),
        "clock_daemon": _clock_daemon(),
        "nics": nics_of(node, mine.device, environ),
        "clock_s": _clock(mine.rank),
        "surroundings": surroundings.look(cpuset.parse(mine.given)),
    }


def measure_all(rank: int, local_rank: int) -> dict[str, Any]:
    """What --all has beside that."""
    host, device = os.uname().nodename, device_of(local_rank)
    everyone = _each({"host": host, "local_rank": local_rank})
    found: dict[str, Any] = {
        "device": str(device),
        "copied_gb_per_s": _rate(device, *_copy(device)) / 1e9,
        "limits": limits(),
        "hard": limits(hard=True),
        "shm_size": _shm("f_blocks"),
        "container": _container(),
        "site": site.look(os.environ),
        "rank_0": _reached(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])),
        "unknown_hosts": _unknown({one["host"] for one in everyone}),
    }
    if device.type != "cpu":
        found["gflops"] = _rate(device, *_product(device)) / 1e9
    first = [one["host"] for one in everyone].index(host) == rank  # one of each node writes
    found["disks"] = disks() if first else {}
    dist.barrier()
    return {**found, "sums": sums(device, rank, everyone)}


def _speed_of_cpus() -> dict[str, float]:
    """Matrix products on the CPU by each thread, the best of some times, and who disturbed it."""
    device = torch.device("cpu")
    work, threads = _product(device), torch.get_num_threads()
    mine, others = 0.0, 0.0
    for _ in range(TIMES):
        ticks, began, ran = surroundings.busy_s(), time.perf_counter(), time.process_time()
        rate = _rate(device, *work, QUICK_S) / 1e9 / threads
        took_s, own_s = time.perf_counter() - began, time.process_time() - ran
        if rate > mine:
            mine, others = rate, max(0.0, surroundings.busy_s() - ticks - own_s) / took_s
        everyone = _each(mine)
        if min(everyone) >= verdicts.SLOW * verdicts.usual(everyone):
            break
    return {"gflops": mine * threads, "gflops_per_thread": mine, "others": others}


def versions() -> dict[str, str]:
    """The versions of what has to be the same on all ranks."""
    import numpy

    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "spawnlaunch": __version__,
        "CUDA of torch": torch.version.cuda or "none",
        "HIP of torch": torch.version.hip or "none",
        "NCCL": _nccl(),
        "drivers": " ".join(_drivers()) or "none",
    }


def _nccl() -> str:
    """The version that torch was built with; "none" where it has none."""
    if not (dist.is_nccl_available() and torch.version.cuda):
        return "none"
    version: tuple[int, ...] = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
    return ".".join(map(str, version))


def _drivers() -> Iterator[str]:
    """The kernel's modules for devices and adapters that tell a version: sysfs(5), module."""
    for name in DRIVERS:
        said = reading.file_text(f"/sys/module/{name}/version")
        if said:
            yield f"{name} {said.strip()}"


def _product(device: torch.device) -> tuple[Callable[[], object], float]:
    """A matrix product that can be repeated, and its floating-point operations."""
    on_cpu = device.type == "cpu"
    side, kind = (CPU_SIDE, torch.float32) if on_cpu else (DEVICE_SIDE, torch.bfloat16)
    one = torch.ones(side, side, device=device, dtype=kind)
    other = torch.ones_like(one)
    return lambda: torch.mm(one, one, out=other), 2.0 * side**3


def _copy(device: torch.device) -> tuple[Callable[[], object], float]:
    """A copy that can be repeated, and the bytes that it reads and writes."""
    size = CPU_COPY if device.type == "cpu" else DEVICE_COPY
    one = torch.ones(size, device=device, dtype=torch.uint8)
    other = torch.empty_like(one)
    return lambda: other.copy_(one), 2.0 * size


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


def sums(
    device: torch.device, rank: int, everyone: Sequence[Mapping[str, Any]]
) -> dict[str, float]:
    """GB/s that each rank adds up, of ranks of one node and of one rank of each node."""
    hosts: dict[str, list[int]] = {}
    for other, one in enumerate(everyone):
        hosts.setdefault(one["host"], []).append(other)
    found = {}
    groups = [("within the node", ranks) for ranks in hosts.values()]
    groups.append(("between nodes", [ranks[0] for ranks in hosts.values()]))
    backend = dist.Backend.default_device_backend_map[device.type]
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
    """By how much this clock is ahead of rank 0's, in seconds.

    Of several questions the one that was answered soonest counts: its answer was given between both
    looks at this clock, which are least apart.
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


def disks() -> dict[str, dict[str, Any]]:
    """The working directory, which the nodes may share, and the place for temporary files."""
    temporary = os.environ.get("TMPDIR") or "/tmp"
    return {"working directory": _disk(os.getcwd()), "temporary files": _disk(temporary)}


def _disk(place: str) -> dict[str, Any]:
    found: dict[str, Any] = {"place": place}
    try:
        room = os.statvfs(place)
        found["free_gib"] = room.f_bavail * room.f_frsize / 2**30
        with tempfile.TemporaryFile(dir=place) as file:
            data = os.urandom(MIB)
            begun = time.perf_counter()
            for _ in range(FILE // MIB):
                file.write(data)
            file.flush()
            os.fsync(file.fileno())
            found["written_mb_per_s"] = FILE / 1e6 / (time.perf_counter() - begun)
    except OSError as error:
        found["error"] = error.strerror
    return found


def limits(hard: bool = False) -> dict[str, float | None]:
    """The soft limits, None where there is none; and the room for shared memory, in bytes."""
    found: dict[str, float | None] = {}
    for name in ("MEMLOCK", "NOFILE", "NPROC"):
        limit = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[hard]
        found[name.lower()] = None if limit == resource.RLIM_INFINITY else limit
    return found if hard else {**found, "shm_free": _shm("f_bavail")}


def _shm(blocks: str) -> int:
    """The bytes of /dev/shm that are free (f_bavail), or all (f_blocks)."""
    try:
        room = os.statvfs("/dev/shm")
    except OSError:
        return 0
    return int(getattr(room, blocks) * room.f_frsize)


def _container() -> str:
    """What this runs in; "" where nothing shows one. Docker and Podman make these files."""
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "Kubernetes"
    return "Docker" if any(map(os.path.exists, ("/.dockerenv", "/run/.containerenv"))) else ""


def _clock_daemon() -> str:
    """One that sets the clock and can be seen from here."""
    for pid in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        name = (reading.file_text(f"/proc/{pid}/comm") or "").strip()
        if name in CLOCK_DAEMONS:
            return name
    return ""


def nics_of(node: hardware.Node, number: int | None, environ: Mapping[str, str]) -> dict[str, Any]:
    """The adapters, those next to the device first, and what NCCL is told to use."""
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
    """All that this machine has."""
    return [name for _, name in socket.if_nameindex()]


def _links() -> list[str]:
    """The interfaces of the network, but for the loopback and those that are known to be down.

    Drivers that do not tell, as of tun and WireGuard, have the state "unknown", and carry all the
    same (operstates.rst).
    """
    states = {
        name: reading.file_text(f"/sys/class/net/{name}/operstate") or "unknown"
        for name in interfaces()
    }
    return [name for name, its in states.items() if name != "lo" and its.strip() in RUNNING]


def _reached(host: str, port: int) -> str | None:
    """Why nobody answers there; None: somebody does. Rank 0 listens while ranks are in touch."""
    try:
        socket.create_connection((host, port), timeout=10).close()
    except OSError as error:
        return f"{host}:{port}: {error.strerror or error}"
    return None


def _unknown(hosts: set[str]) -> list[str]:
    """Names of nodes that this one cannot look up."""
    found = []
    for host in sorted(hosts):
        try:
            socket.getaddrinfo(host, None)
        except (OSError, UnicodeError):
            found.append(host)
    return found


def _each(mine: Any) -> list[Any]:
    box: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(box, mine)
    return box
