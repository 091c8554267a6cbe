"""The faults of the ranks, and remedies: pure functions of all ranks' facts and measurements.

No remedy asks for a step that is done already, or that does not fit the place:
tests/check/test_remedies.py has the circumstances of each text.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median, median_high
from typing import Any, NamedTuple

from spawnlaunch.base import cpuset
from spawnlaunch.binding import placement
from spawnlaunch.check.facts import Facts, parsed
from spawnlaunch.check.measurements import BETWEEN, NETWORK, SLOW, WITHIN
from spawnlaunch.hang.groups import ranks_of

# Of these FAIL alone is status 1. A note describes the machine, and is no fault of the launch.
OK, NOTE, WARN, FAIL = "ok", "note", "warn", "fail"
VERY_SLOW = 0.5  # a fault
SLOW_BESIDE_OTHERS = 0.25  # a fault where others run on the rank's CPUs
OTHERS = 0.25  # of a CPU, that these have
MANY_FILES = 65536
# Limits of a process: in words, enough of it, and too little of it; a DataLoader worker opens some
# files for each tensor that it sends.
LIMITS = {
    "memlock": ("locked memory (ulimit -l)", float("inf"), 0),  # adapters want it
    "nofile": ("open files (ulimit -n)", 4096, 256),
    "nproc": ("processes (ulimit -u)", 4096, 256),
    "shm": ("shared memory (/dev/shm)", 1 << 30, 128 << 20),  # two batches fill Docker's 64 MiB
}
BUSY = 0.5  # load for each CPU
CLOCK_S = 1.0  # more mixes up logs, and confuses tools that compare times of files
LAUNCH = "start with spawnlaunch, which gives every rank its own cores"
ON_CORES = ("--bind", "--threads", "--reserve-cpus")  # flags that take cores from a rank
FEWER = "start fewer ranks: few cores are next to their devices"
NO_DEVICE = "let it see one: look at CUDA_VISIBLE_DEVICES, and at what the job was given (--gpus)"
MORE_SHM = (
    "make /dev/shm larger, as loaders send batches through it: mount -o remount,size=8G /dev/shm; "
    "docker run --shm-size=8g, or --ipc=host; in Kubernetes an emptyDir with medium: Memory"
)

Rank = Mapping[str, Any]  # a rank's measurements, with its "rank" and "host"


class Verdict(NamedTuple):
    """A property that was checked, its state, and a remedy."""

    name: str
    status: str  # OK, NOTE, WARN or FAIL
    message: str
    remedy: str = ""
    ranks: tuple[int, ...] = ()  # the ranks that it is about; empty: all, or no one rank


# Bindings


def of_bindings(everyone: Sequence[Facts]) -> list[Verdict]:
    """All faults of the bindings, node by node.

    The effects that --oversubscribe asked for are only noted.
    """
    verdicts: list[Verdict] = []
    for host, members in _by(everyone, lambda facts: facts.host).items():
        on_host = sorted(members, key=lambda facts: facts.local_rank)
        verdicts += _shared(host, on_host)
        verdicts += _shared_devices(host, on_host)
        verdicts += _narrow(host, on_host)
    without = [facts for facts in everyone if not facts.visible_devices]
    if 0 < len(without) < len(everyone):
        numbers = tuple(facts.rank for facts in without)
        hosts = ", ".join(dict.fromkeys(facts.host for facts in without))
        message = f"{ranks_of(numbers)} on {hosts}: no device is seen there, and others see some"
        verdicts.append(Verdict("no-device", FAIL, message, NO_DEVICE, numbers))
    for facts in everyone:
        verdicts += _of_rank(facts)
    return verdicts


def _by(ranks: Sequence[Any], value: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    """The ranks of each value."""
    groups: dict[Any, list[Any]] = {}
    for rank in ranks:
        groups.setdefault(value(rank), []).append(rank)
    return groups


def _status_of_sharing(ranks: Sequence[Facts]) -> str:
    return NOTE if any("--oversubscribe" in facts.typed for facts in ranks) else FAIL


def _shared(host: str, ranks: Sequence[Facts]) -> Iterator[Verdict]:
    """Ranks with overlapping masks, each group of them once."""
    groups: list[tuple[list[Facts], cpuset.CpuSet]] = []
    for facts in ranks:
        mask = parsed(facts.cpus)
        touching = [group for group in groups if group[1] & mask]
        groups = [group for group in groups if group not in touching]
        others = [other for members, _ in touching for other in members]
        groups.append(([*others, facts], mask.union(*(cpus for _, cpus in touching))))
    for members, cpus in groups:
        if len(members) > 1:
            numbers = tuple(sorted(facts.rank for facts in members))
            message = f"on {host} {ranks_of(numbers)} share the CPUs {cpuset.format(cpus)}"
            remedy = remedy_of_shared(members, ranks)
            yield Verdict("shared-cores", _status_of_sharing(members), message, remedy, numbers)


def remedy_of_shared(members: Sequence[Facts], here: Sequence[Facts]) -> str:
    """The remedy for ranks that share cores, of all that are on this host."""
    if moved := _moved(members):
        return remedy_of_drift(moved)
    first = members[0]
    is_small = first.cores_of_node < len(here)
    if is_small and not first.isolated:
        return "start fewer ranks on this machine, which has fewer cores"
    if len({facts.divided_cpus for facts in members}) == 1 and _are_apart(members):
        return _of_flags(first) if first.launched else LAUNCH
    if way := first.isolated if is_small else first.wider or first.isolated:
        return f"start fewer ranks, or {way}"
    return FEWER


def _shared_devices(host: str, ranks: Sequence[Facts]) -> Iterator[Verdict]:
    """Ranks that take one device, each group of them once."""
    for device, members in _by(ranks, lambda facts: facts.device).items():
        if device is not None and len(members) > 1:
            first, numbers = members[0], tuple(sorted(facts.rank for facts in members))
            message = f"on {host} {ranks_of(numbers)} take one device, {first.device_address}"
            remedy = (
                "start as many workers as there are devices (--nproc gpu), or use --oversubscribe"
                if first.launched
                else "start as many ranks as there are devices: spawnlaunch --nproc gpu"
            )
            yield Verdict("shared-device", _status_of_sharing(members), message, remedy, numbers)


def _narrow(host: str, ranks: Sequence[Facts]) -> Iterator[Verdict]:
    """Ranks on one core of a machine that has at least two for each, also near these ranks."""
    has_two = ranks[0].cores_of_node >= 2 * len(ranks)
    narrow = [facts for facts in ranks if has_two and facts.cores == 1 < facts.best_cores]
    if narrow:
        squeezed = tuple(facts.rank for facts in narrow)
        there = f"of {ranks[0].cores_of_node} for {len(ranks)} ranks"
        message = f"on {host} ranks {cpuset.format(squeezed)} have one core each, {there}"
        yield Verdict("one-core", FAIL, message, remedy_of_narrow(narrow), squeezed)


def remedy_of_narrow(members: Sequence[Facts]) -> str:
    """The remedy for ranks that have one core each."""
    if moved := _moved(members):
        return remedy_of_drift(moved)
    first = members[0]
    if first.launched and first.default_cores > 1 and _are_apart(members):
        return _of_flags(first)
    return f"start {first.wider}" if first.wider else FEWER


def _of_rank(facts: Facts) -> Iterator[Verdict]:
    """The faults of one rank by itself."""
    for name, wrong in (
        ("remote", _remote(facts)),
        ("far-memory", _far_memory(facts)),
        ("threads", _too_many_threads(facts)),
        ("drift", _drifted(facts)),
    ):
        if wrong:
            text, remedy = wrong
            message = f"rank {facts.rank} on {facts.host} {text}"
            yield Verdict(name, FAIL, message, remedy, (facts.rank,))


def _remote(facts: Facts) -> tuple[str, str] | None:
    """CPUs that are not next to the device."""
    if facts.device_cpus is None or not facts.cpus:
        return None
    if parsed(facts.cpus) <= parsed(facts.device_cpus) or parsed(facts.numa) == {facts.device_numa}:
        return None
    device = f"its device {facts.device_address} is next to {facts.device_cpus}"
    return f"runs on CPUs {facts.cpus}, and {device}", remedy_of_remote(facts)


def remedy_of_remote(facts: Facts) -> str:
    """The remedy for a rank on CPUs that are not next to its device."""
    if moved := _moved([facts]):
        return remedy_of_drift(moved)
    if facts.nearer:
        return f"start {facts.nearer}"
    return _of_flags(facts) if facts.launched else f"{LAUNCH}, next to its device"


def _far_memory(facts: Facts) -> tuple[str, str] | None:
    """A policy, or a cpuset, that leaves out every NUMA node of the rank's CPUs."""
    near = parsed(facts.memory_near)
    mode, _, nodes = facts.memory.partition(" ")
    # A policy within a cpuset cannot give more than that.
    for limit, text in (("cpuset", facts.memory_allowed), (f"policy {mode}", nodes)):
        if near and text and not near & parsed(text):
            place = f"runs beside NUMA node {facts.memory_near}"
            message = f"{place}, and its memory's {limit} gives it that of {text}"
            return message, remedy_of_far_memory(facts, limit == "cpuset")
    return None


def remedy_of_far_memory(facts: Facts, is_cpuset: bool) -> str:
    """The remedy for memory that is away from the CPUs."""
    if is_cpuset:
        return f"let the job have the memory of NUMA node {facts.memory_near} (cpuset.mems)"
    if facts.launched and "--mem-bind" in facts.typed:
        return "leave --mem-bind out"
    instead = "--mem-bind preferred" if facts.launched else "--localalloc"
    return f"start without numactl --membind, or with {instead}"


def _too_many_threads(facts: Facts) -> tuple[str, str] | None:
    """More threads than hardware threads: they wait for each other."""
    cpus = len(parsed(facts.cpus))
    if not cpus or facts.omp_threads <= cpus:
        return None
    there = f"CPU{'s' * (cpus > 1)} {facts.cpus}"
    return f"computes with {facts.omp_threads} threads on {there}", remedy_of_threads(facts)


def remedy_of_threads(facts: Facts) -> str:
    """The remedy for more threads than CPUs."""
    if moved := _moved([facts]):
        return remedy_of_drift(moved)
    names = facts.threads_by or ("OMP_NUM_THREADS",)
    values = " ".join(f"{name}={max(1, facts.cores)}" for name in names)
    return f"unset {' '.join(names)}, or export {values}"


def _drifted(facts: Facts) -> tuple[str, str] | None:
    """Threads or children with another mask than the process had at its start."""
    masks = [("the main thread", facts.cpus), *(("a thread", each) for each in facts.threads[1:]),
             ("a DataLoader worker", facts.loader_cpus)]  # fmt: skip
    start = facts.cpus_at_start
    changed = [f"{owner} on {cpus or 'nothing'}" for owner, cpus in masks if cpus != start]
    if not changed:
        return None
    message = f"started on CPUs {start} and has {', '.join(dict.fromkeys(changed))}"
    return message, remedy_of_drift(facts)


def remedy_of_drift(facts: Facts) -> str:
    """The remedy for a mask that was lost."""
    if facts.openmp == (placement.KMP,):
        return f"unset {placement.KMP}, or set it to disabled"
    return (
        f"unset {' '.join(facts.openmp)}" if facts.openmp else "look for a library that sets masks"
    )


def _of_flags(facts: Facts) -> str:
    """The remedy for a rank that the launcher would place better without its flags."""
    if typed := [name for name in ON_CORES if name in facts.typed]:
        names = " and ".join(filter(None, (", ".join(typed[:-1]), typed[-1])))
        return f"leave {names} out: by default every rank has its own cores"
    return remedy_of_drift(facts)


def _moved(ranks: Sequence[Facts]) -> Facts | None:
    """A rank that has lost its mask: there no launcher helps."""
    return next((facts for facts in ranks if facts.cpus != facts.cpus_at_start), None)


def _are_apart(ranks: Sequence[Facts]) -> bool:
    """Whether the launcher's default gives each of these ranks cores of its own."""
    shares = [cpuset.parse(facts.by_default) for facts in ranks]
    return all(shares) and len(frozenset.union(*shares)) == sum(map(len, shares))


# Measurements


def of_measured(ranks: Sequence[Rank]) -> list[Verdict]:
    """All lines on the measurements of all ranks, in their order; more of them with --all."""
    verdicts = [
        _versions(ranks),
        _speed(ranks, "matrix product", "gflops_per_thread", "GFLOP/s per thread", "cpu"),
        _clocks(ranks),
    ]
    for (text, wrong, remedy), members in _by(ranks, _nics_of).items():
        numbers = _numbers(members)
        message = f"{ranks_of(numbers)}: {text}{wrong}"
        verdicts.append(Verdict("network", FAIL if wrong else OK, message, remedy, numbers))
    verdicts += _surroundings(ranks)
    if "limits" in ranks[0]:
        if ranks[0]["computes_on"] != "cpu":
            verdicts.append(_speed(ranks, "matrix product", "gflops", "GFLOP/s per rank"))
        verdicts += [*_sums(ranks), *_limits(ranks)]
    return verdicts


def _numbers(ranks: Sequence[Rank]) -> tuple[int, ...]:
    return tuple(rank["rank"] for rank in ranks)


def _versions(ranks: Sequence[Rank]) -> Verdict:
    differ = []
    for software in ranks[0]["versions"]:
        groups = _by(ranks, lambda rank, name=software: rank["versions"][name])  # type: ignore[misc]
        if len(groups) > 1:
            each = (f"{ranks_of(_numbers(group))} {version}" for version, group in groups.items())
            differ.append(f"{software}: {', '.join(each)}")
    if differ:
        remedy = "install the same on all nodes, and start all ranks with the same Python"
        return Verdict("versions", FAIL, "; ".join(differ), remedy)
    same = ", ".join(f"{name} {v}" for name, v in ranks[0]["versions"].items() if v != "none")
    return Verdict("versions", OK, same)


def _speed(ranks: Sequence[Rank], name: str, key: str, unit: str, device: str = "") -> Verdict:
    rates, device = [rank[key] for rank in ranks], device or ranks[0]["computes_on"]
    usual = median_high(rates)  # at least half of all ranks reach it, or of two the faster one
    slow = [rank for rank in ranks if rank[key] < SLOW * usual]
    if not slow:
        return Verdict(name, OK, f"{min(rates):.3g} to {max(rates):.3g} {unit}, on {device}")
    named = ", ".join(f"rank {rank['rank']} on {rank['host']} {rank[key]:.3g}" for rank in slow)
    message = f"{named}, where others have {usual:.3g} {unit}"
    is_fault = any(
        rank[key] < usual * (SLOW_BESIDE_OTHERS if rank["others"] > OTHERS else VERY_SLOW)
        for rank in slow
    )
    remedy = "look for other processes there (top), and for shared cores (the table above)"
    if device != "cpu":
        tools = "nvidia-smi -q -d PERFORMANCE, rocm-smi"
        remedy += f", and for a device that is hot or capped ({tools})"
    return Verdict(name, FAIL if is_fault else WARN, message, remedy, _numbers(slow))


def _clocks(ranks: Sequence[Rank]) -> Verdict:
    most = max(ranks, key=lambda rank: abs(rank["clock_s"]))
    ahead_s = most["clock_s"]
    if abs(ahead_s) < CLOCK_S:
        return Verdict("clocks", OK, f"at most {abs(ahead_s) * 1000:.2g} ms apart from rank 0's")
    by = f"{abs(ahead_s):.3g} s {'ahead of' if ahead_s > 0 else 'behind'} rank 0's"
    remedy = "let chrony or ntpd run on that machine, and see that it reaches its servers"
    return Verdict("clocks", FAIL, f"{most['host']} is {by}", remedy, (most["rank"],))


def _nics_of(rank: Rank) -> tuple[str, str, str]:
    """The network of a rank in words, the faults of the settings for it, and the remedy."""
    nics = rank["nics"]
    every = dict.fromkeys(NETWORK, nics["interfaces"])
    every |= {"NCCL_IB_HCA": nics["all"], "NCCL_SOCKET_IFNAME": [*nics["links"], "lo"]}
    wrong = [(n, t) for n, t in every.items() if nics[n] and not are_there(n, nics[n], t)]
    there = f"adapters: {', '.join(nics['all']) or 'none'}"
    there += f" (next to the device: {', '.join(nics['near'])})" * bool(nics["near"])
    there += f"; interfaces: {', '.join(nics['links']) or 'the loopback'}"
    faults = [f"; {n}={nics[n]} names others than {', '.join(t) or 'none'}" for n, t in wrong]
    remedies = (f"unset {n}" + f", or name one of {', '.join(t)}" * bool(t) for n, t in wrong)
    return there, "".join(faults), "; ".join(remedies)


def are_there(variable: str, names: str, there: Sequence[str]) -> bool:
    """Whether the named interfaces are there: NCCL uses some of them, gloo needs them all."""
    is_for_nccl = variable.startswith("NCCL")
    return bool(named(names, there)) if is_for_nccl else {*names.split(",")} <= {*there}


def named(pattern: str, there: Sequence[str]) -> list[str]:
    """Which of these NCCL_IB_HCA or NCCL_SOCKET_IFNAME means: prefixes, after "=" whole names, and
    after "^" all others. A port may follow an adapter: `=mlx5_0:1` (NCCL's User Guide).

    >>> named("^docker,lo", ["docker0", "eth0", "lo"]), named("=mlx5_1:1", ["mlx5_1", "mlx5_10"])
    (['eth0'], ['mlx5_1'])
    """
    exact = pattern.lstrip("^").startswith("=")
    words = [word.partition(":")[0] for word in pattern.lstrip("^=").split(",")]
    matching = [
        name
        for name in there
        if any(name == word if exact else name.startswith(word) for word in words)
    ]
    return [name for name in there if name not in matching] if pattern.startswith("^") else matching


def _surroundings(ranks: Sequence[Rank]) -> Iterator[Verdict]:
    """Notes on a node's load and quota that may cost time, as its first rank sees them."""
    for host, members in _by(ranks, lambda rank: rank["host"]).items():
        cpus, load, quota = (members[0]["surroundings"][n] for n in ("cpus", "load", "quota_cpus"))
        numbers = _numbers(members)
        if load > BUSY * cpus:
            message = f"{host}: {load:.1f}, with {cpus} CPUs that may be used"
            yield Verdict("load", NOTE, message, "", numbers)
        if quota is not None and quota < cpus:
            message = f"{host}: the time of {quota:.3g} CPUs, of {cpus}"
            yield Verdict("CPU quota", NOTE, message, "", numbers)


def _sums(ranks: Sequence[Rank]) -> Iterator[Verdict]:
    for name in (WITHIN, BETWEEN):
        sums = [(rank["sums"][name], rank["host"]) for rank in ranks if name in rank["sums"]]
        if not sums:
            continue
        rates = [rate for rate, _ in sums]
        slowest, host = min(sums)
        message = f"{min(rates):.3g} to {max(rates):.3g} GB/s of 16 MiB, {name}"
        if name == WITHIN and slowest < SLOW * median(rates):
            remedy = "look for other processes there (top)"
            if ranks[0]["computes_on"] != "cpu":
                tools = "nvidia-smi topo -m, rocm-smi --showtopo"
                remedy += f", and compare its wiring with that of another ({tools})"
            yield Verdict("all-reduce", WARN, f"{message}; {host} is slowest", remedy)
        else:
            yield Verdict("all-reduce", OK, message)


def _limits(ranks: Sequence[Rank]) -> Iterator[Verdict]:
    has_adapters = any(rank["nics"]["all"] for rank in ranks)
    for key, (name, enough, least) in LIMITS.items():
        known = [rank for rank in ranks if rank["limits"][key][0] is not None]
        low = min((rank["limits"][key][0] for rank in known), default=None)
        message = f"{name}: {'unlimited' if low is None else f'{low:,.0f}'}"
        if low is None or low >= enough or (key == "memlock" and not has_adapters):
            yield Verdict("limits", OK, message)
            continue
        members = [rank for rank in known if rank["limits"][key][0] == low]
        hard = members[0]["limits"][key][1]
        remedy = MORE_SHM if key == "shm" else remedy_of_limit(key, hard, name, enough)
        message += f", of {ranks_of(_numbers(members))}"
        yield Verdict("limits", FAIL if low < least else WARN, message, remedy, _numbers(members))


def remedy_of_limit(key: str, hard: float | None, name: str, enough: float) -> str:
    """The remedy for a soft limit below `enough`; a shell can raise it as far as the hard one."""
    if hard is None or hard >= enough:
        most = MANY_FILES if key == "nofile" else float("inf")
        most = most if hard is None else min(most, hard)
        flag = name.partition("(")[2].rstrip(")")  # `ulimit -n`
        return f"{flag} {'unlimited' if most == float('inf') else int(most)}"
    return (
        f"its hard limit is {hard:,.0f}: raise {key} in /etc/security/limits.conf, and for the "
        f"daemon that starts jobs (Limit{key.upper()}= of systemd), or docker run --ulimit {key}="
    )
