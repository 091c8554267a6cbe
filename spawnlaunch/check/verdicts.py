"""What is said of what was measured: ok, note, warn or fail, with a remedy; a pure function."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median, median_high
from typing import Any

from spawnlaunch.check import remedies, site
from spawnlaunch.check.verdict import FAIL, NOTE, OK, WARN, Verdict
from spawnlaunch.rollcall import groups

SLOW = 0.8  # of what is usual: such a rank holds up all others
VERY_SLOW = 0.5  # a fault
SLOW_BESIDE_OTHERS = 0.25  # a fault where others run on the rank's CPUs
OTHERS = 0.25  # of a CPU, that these have
FEW_FILES, FEW_PROCESSES = 4096, 4096  # a DataLoader worker opens some for each tensor it sends
LITTLE_SHM, NO_SHM = 1 << 30, 128 << 20  # Docker gives 64 MiB, which two batches fill
LITTLE_DISK_GIB, NO_DISK_GIB = 10.0, 1.0
SLOW_DISK_MB_PER_S = 50.0
BUSY = 0.5  # load for each CPU
MUCH_SWAP = 64 << 20
FAST_GOVERNORS = ("performance", "schedutil")
GIB = 1 << 30
CLOCK_S = 1.0  # more mixes up logs, and confuses tools that compare times of files

Rank = Mapping[str, Any]


def verdicts(ranks: Sequence[Rank]) -> list[Verdict]:
    """All lines, for the measurements of all ranks in their order; more of them with --all."""
    found = [
        _versions(ranks),
        _speed(ranks, "matrix product", "gflops_per_thread", "GFLOP/s per thread", "cpu"),
        _clocks(ranks),
        *_nics(ranks),
        *_surroundings(ranks),
    ]
    if "limits" not in ranks[0]:
        return found
    if ranks[0]["device"] != "cpu":
        found.append(_speed(ranks, "matrix product", "gflops", "GFLOP/s per rank"))
    return [
        *found,
        _speed(ranks, "memory", "copied_gb_per_s", "GB/s per rank"),
        *_sums(ranks),
        _names(ranks),
        _rank_0(ranks),
        *_disks(ranks),
        *_limits(ranks),
        *site.verdicts(ranks),
    ]


def usual(rates: Sequence[float]) -> float:
    """What at least half of all ranks reach, or of two the faster one."""
    return median_high(rates)


def _by(ranks: Sequence[Rank], value: Callable[[Rank], Any]) -> dict[Any, list[int]]:
    """The ranks of each value."""
    found: dict[Any, list[int]] = {}
    for one in ranks:
        found.setdefault(value(one), []).append(one["rank"])
    return found


def _versions(ranks: Sequence[Rank]) -> Verdict:
    differ = []
    for what in ranks[0]["versions"]:
        found = _by(ranks, lambda one, what=what: one["versions"][what])  # type: ignore[misc]
        if len(found) > 1:
            said = ", ".join(f"{groups.ranks_of(who)} {version}" for version, who in found.items())
            differ.append(f"{what}: {said}")
    if differ:
        return Verdict("versions", FAIL, "; ".join(differ), remedies.of_versions(ranks))
    same = ", ".join(f"{what} {v}" for what, v in ranks[0]["versions"].items() if v != "none")
    return Verdict("versions", OK, same)


def _speed(ranks: Sequence[Rank], name: str, key: str, unit: str, device: str = "") -> Verdict:
    rates = [one[key] for one in ranks]
    middle = usual(rates)
    said = f"{min(rates):.3g} to {max(rates):.3g} {unit}, on {device or ranks[0]['device']}"
    slow = [one for one in ranks if one[key] < SLOW * middle]
    if not slow:
        return Verdict(name, OK, said)
    named = ", ".join(f"rank {one['rank']} on {one['host']} {one[key]:.3g}" for one in slow)
    said = f"{named}, where others have {middle:.3g} {unit}"
    is_fault = any(one[key] < _least(one) * middle for one in slow)
    numbers = tuple(one["rank"] for one in slow)
    return Verdict(name, FAIL if is_fault else WARN, said, remedies.of_slow(slow[0]), numbers)


def _least(rank: Rank) -> float:
    """From which share of what is usual on a rank is not at fault: others may be beside it."""
    return SLOW_BESIDE_OTHERS if rank["others"] > OTHERS else VERY_SLOW


def _sums(ranks: Sequence[Rank]) -> Iterator[Verdict]:
    for name in ("within the node", "between nodes"):
        found = [(one["sums"][name], one["host"]) for one in ranks if name in one["sums"]]
        if not found:
            continue
        rates = [rate for rate, _ in found]
        slowest, host = min(found)
        said = f"{min(rates):.3g} to {max(rates):.3g} GB/s of 16 MiB, {name}"
        if name == "within the node" and slowest < SLOW * median(rates):
            remedy = remedies.of_wiring(next(one for one in ranks if one["host"] == host))
            yield Verdict("all-reduce", WARN, f"{said}; {host} is slowest", remedy)
        else:
            yield Verdict("all-reduce", OK, said)


def _nics(ranks: Sequence[Rank]) -> Iterator[Verdict]:
    """By host, as it is seen from its first rank."""
    for (said, wrong, remedy), who in _by(ranks, _nics_of).items():
        message = f"{groups.ranks_of(who)}: {said}{wrong}"
        yield Verdict("network", FAIL if wrong else OK, message, remedy, tuple(who))


def _nics_of(rank: Rank) -> tuple[str, str, str]:
    """What is there and is chosen, what is wrong with that, and the remedy."""
    found = rank["nics"]
    every = {
        "NCCL_IB_HCA": found["all"],
        "NCCL_SOCKET_IFNAME": [*found["links"], "lo"],
        **dict.fromkeys(("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"), found["interfaces"]),
    }
    wrong = [(n, t) for n, t in every.items() if found[n] and not are_there(n, found[n], t)]
    near = f"next to the device {', '.join(found['near'])}; " if found["near"] else ""
    adapters = ", ".join(found["all"]) or "none"
    if found["NCCL_IB_HCA"]:
        choice = f"NCCL_IB_HCA={found['NCCL_IB_HCA']}"
    elif found["NCCL_SOCKET_IFNAME"] and not found["all"]:
        choice = f"NCCL_SOCKET_IFNAME={found['NCCL_SOCKET_IFNAME']}"
    elif found["all"]:
        choice = f"would choose {', '.join(found['near'] or found['all'])}"
    else:
        choice = f"would choose sockets on {', '.join(found['links']) or 'the loopback'}"
    said = [f"; {n}={found[n]} names others than {', '.join(t) or 'none'}" for n, t in wrong]
    remedy = "; ".join(remedies.of_network(*each) for each in wrong)
    return f"{near}adapters: {adapters}; NCCL {choice}", "".join(said), remedy


def are_there(variable: str, asked: str, there: Sequence[str]) -> bool:
    """Whether these are what a variable asks for: NCCL takes some, gloo all that it names."""
    is_for_nccl = variable.startswith("NCCL")
    return bool(named(asked, there)) if is_for_nccl else {*asked.split(",")} <= {*there}


def named(asked: str, there: Sequence[str]) -> list[str]:
    """Which of these NCCL_IB_HCA or NCCL_SOCKET_IFNAME means: prefixes, after "=" whole names, and
    after "^" all others. A port may follow an adapter: `=mlx5_0:1` (NCCL's User Guide).

    >>> named("^docker,lo", ["docker0", "eth0", "lo"]), named("=mlx5_1:1", ["mlx5_1", "mlx5_10"])
    (['eth0'], ['mlx5_1'])
    """
    exact = asked.lstrip("^").startswith("=")
    words = [word.partition(":")[0] for word in asked.lstrip("^=").split(",")]
    found = [
        name
        for name in there
        if any(name == word if exact else name.startswith(word) for word in words)
    ]
    return [name for name in there if name not in found] if asked.startswith("^") else found


def _names(ranks: Sequence[Rank]) -> Verdict:
    hosts = {one["host"] for one in ranks}
    unknown = {one["host"]: one["unknown_hosts"] for one in ranks if one["unknown_hosts"]}
    if not unknown:
        return Verdict("host names", OK, f"{len(hosts)}, known to all nodes")
    said = "; ".join(f"{host} does not know {', '.join(names)}" for host, names in unknown.items())
    return Verdict("host names", WARN, said, "add them to the DNS, or to /etc/hosts of each node")


def _rank_0(ranks: Sequence[Rank]) -> Verdict:
    silent = {one["host"]: one["rank_0"] for one in ranks if one["rank_0"]}
    if not silent:
        return Verdict("rank 0", OK, "answers at MASTER_ADDR and MASTER_PORT, from every rank")
    said = "; ".join(f"from {host}: {why}" for host, why in silent.items())
    return Verdict("rank 0", FAIL, said, "see --master-addr, --master-port, and the firewall")


def _disks(ranks: Sequence[Rank]) -> Iterator[Verdict]:
    for one in ranks:
        for name, disk in one["disks"].items():
            yield _disk(one["host"], name, disk)


def _disk(host: str, name: str, disk: Mapping[str, Any]) -> Verdict:
    what = f"{host}: {name}, {disk['place']}"
    if "error" in disk:
        remedy = remedies.of_disk(name, disk, is_full=False)
        return Verdict("disk", FAIL, f"{what}: {disk['error']}", remedy)
    free, speed = disk["free_gib"], disk["written_mb_per_s"]
    said = f"{what}: {speed:.3g} MB/s written, {free:.3g} GiB free"
    is_full = free < LITTLE_DISK_GIB
    if not is_full and speed >= SLOW_DISK_MB_PER_S:
        return Verdict("disk", OK, said)
    status = FAIL if free < NO_DISK_GIB else WARN
    return Verdict("disk", status, said, remedies.of_disk(name, disk, is_full))


def _clocks(ranks: Sequence[Rank]) -> Verdict:
    most = max(ranks, key=lambda one: abs(one["clock_s"]))
    ahead = most["clock_s"]
    if abs(ahead) < CLOCK_S:
        return Verdict("clocks", OK, f"at most {abs(ahead) * 1000:.2g} ms apart from rank 0's")
    said = f"{most['host']} is {abs(ahead):.3g} s {'ahead of' if ahead > 0 else 'behind'} rank 0's"
    return Verdict("clocks", FAIL, said, remedies.of_clock(most), (most["rank"],))


def _surroundings(ranks: Sequence[Rank]) -> Iterator[Verdict]:
    """What each node is like, where it may cost time, as its first rank sees it."""
    for host, who in _by(ranks, lambda one: one["host"]).items():
        first = next(one for one in ranks if one["rank"] == who[0])
        for name, said in _around(first["surroundings"]):
            yield Verdict(name, NOTE, f"{host}: {said}", "", tuple(who))


def _around(its: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    cpus, limit = its["cpus"], its["memory_limit"]
    if its["load"] > BUSY * cpus:
        yield "load", f"{its['load']:.1f}, with {cpus} CPUs that may be used"
    if its["quota_cpus"] is not None and its["quota_cpus"] < cpus:
        yield "CPU quota", f"the time of {its['quota_cpus']:.3g} CPUs, of {cpus}"
    if slow := [each for each in its["governors"] if each not in FAST_GOVERNORS]:
        yield "governor", f"{', '.join(slow)}: clocks may be slow to rise"
    if its["swap_used"] > MUCH_SWAP:
        yield "swap", f"{its['swap_used'] / GIB:.3g} GiB are used"
    if limit is not None and limit < its["memory"]:
        used = its["memory_used"] / GIB
        yield "memory limit", f"the control group has {used:.3g} GiB of {limit / GIB:.3g}"


def _limits(ranks: Sequence[Rank]) -> Iterator[Verdict]:
    has_adapters = any(one["nics"]["all"] for one in ranks)
    rows = (
        ("memlock", "locked memory (ulimit -l)", float("inf") if has_adapters else 0, 0),
        ("nofile", "open files (ulimit -n)", FEW_FILES, 256),
        ("nproc", "processes (ulimit -u)", FEW_PROCESSES, 256),
        ("shm_free", "shared memory (/dev/shm)", LITTLE_SHM, NO_SHM),
    )
    for key, name, enough, least in rows:
        values = [one["limits"][key] for one in ranks]
        low = min((value for value in values if value is not None), default=None)
        said = f"{name}: {'unlimited' if low is None else f'{low:,.0f}'}"
        if low is None or low >= enough:
            yield Verdict("limits", OK, said)
            continue
        who = [one for one in ranks if one["limits"][key] == low]
        status = FAIL if low < least else WARN
        said = f"{said}, of {groups.ranks_of([one['rank'] for one in who])}"
        yield Verdict("limits", status, said, remedies.of_limits(who[0], key, enough))
