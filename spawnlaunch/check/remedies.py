"""What to do about what is wrong. Pure functions of what ranks have told.

None says what is done already, nor what does not fit the place: tests/check/test_remedies.py has
the circumstances of each text.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from spawnlaunch.check.facts import Facts

LAUNCH = "start with python -m spawnlaunch, which gives every rank its own cores"
NO_FLAGS = "leave --bind, --threads and --reserve-cpus out: by default every rank has its own cores"
FEWER = "start fewer ranks: few cores are next to their devices"
MANY_FILES = 65536
FLAGS = {"memlock": "-l", "nofile": "-n", "nproc": "-u"}  # of ulimit
IN_DOCKER = {"memlock": -1, "nofile": MANY_FILES, "nproc": -1}
LARGE_SHM = 8 << 30
NO_DEVICE = "let it see one: look at CUDA_VISIBLE_DEVICES, and at what the job was given (--gpus)"

Rank = Mapping[str, Any]


# Bindings


def of_shared(members: Sequence[Facts], here: Sequence[Facts]) -> str:
    """For ranks that share cores, of all that are on this host."""
    if moved := _moved(members):
        return of_drift(moved)
    if members[0].cores_of_node < len(here):
        return "start fewer ranks on this machine, which has fewer cores"
    if all(facts.given_cores >= len(_rivals(facts, here)) for facts in members) and (
        len({facts.given for facts in members}) == 1
    ):
        if members[0].launched:
            return NO_FLAGS
        return LAUNCH
    if members[0].wider:
        return f"start fewer ranks, or {members[0].wider}"
    return FEWER


def of_narrow(members: Sequence[Facts], here: Sequence[Facts]) -> str:
    """For ranks that have one core each."""
    first = members[0]
    if moved := _moved(members):
        return of_drift(moved)
    if first.given_cores >= 2 * len(_rivals(first, here)) and first.launched:
        return NO_FLAGS
    if first.wider:
        return f"start {first.wider}"
    return FEWER


def of_remote(facts: Facts) -> str:
    """For a rank whose CPUs are not next to its device."""
    if moved := _moved([facts]):
        return of_drift(moved)
    if facts.nearer:
        return f"start {facts.nearer}"
    if facts.launched:
        return NO_FLAGS
    return f"{LAUNCH}, next to its device"


def of_shared_device(facts: Facts) -> str:
    """For ranks that take one device."""
    if facts.launched:
        return "start as many workers as there are devices (--nproc gpu), or type --oversubscribe"
    return "start as many ranks as there are devices: python -m spawnlaunch --nproc gpu"


def of_far_memory(facts: Facts, is_cpuset: bool) -> str:
    """For memory that is away from the CPUs."""
    if is_cpuset:
        return f"let the job have the memory of NUMA node {facts.memory_near} (cpuset.mems)"
    if facts.launched:
        return "leave --mem-bind out, and start without numactl --membind"
    return "start without numactl --membind, or with --localalloc"


def of_threads(facts: Facts) -> str:
    """For more threads than CPUs."""
    return f"unset OMP_NUM_THREADS, or export OMP_NUM_THREADS={max(1, facts.cores)}"


def of_drift(facts: Facts) -> str:
    """For a mask that was lost."""
    if facts.openmp:
        return f"unset {' '.join(facts.openmp)}"
    return "look for a library that sets masks"


def _moved(ranks: Sequence[Facts]) -> Facts | None:
    """One that has lost its mask: there no launcher helps."""
    return next((facts for facts in ranks if facts.cpus != facts.cpus_at_start), None)


def _rivals(facts: Facts, here: Sequence[Facts]) -> list[Facts]:
    """Those that divide the same cores."""
    mine = (facts.given, facts.device_cpus)
    return [other for other in here if (other.given, other.device_cpus) == mine]


# What was measured


def of_versions(ranks: Sequence[Rank]) -> str:
    """For ranks of which some have other versions."""
    hosts: dict[str, set[str]] = {}
    for one in ranks:
        hosts.setdefault(one["host"], set()).add(str(one["versions"]))
    if any(len(versions) > 1 for versions in hosts.values()):
        return "start all ranks of a node with the same Python and the same variables"
    return "install the same on all nodes"


def of_slow(rank: Rank) -> str:
    """For a rank that is slower than the others; the first is as good as any."""
    others = "look for other processes there (top), and for shared cores (the table above)"
    if rank["device"].startswith("cuda"):
        tool = "rocm-smi" if _has_hip(rank) else "nvidia-smi -q -d PERFORMANCE"
        return f"{others}, and for a device that is hot or capped ({tool})"
    if rank["device"] != "cpu":
        return f"{others}, and for a device that is hot or capped"
    return others


def of_wiring(rank: Rank) -> str:
    """For a node within which sums are slower."""
    if not rank["device"].startswith("cuda"):
        return "look for other processes there (top)"
    tool = "rocm-smi --showtopo" if _has_hip(rank) else "nvidia-smi topo -m"
    return f"compare its wiring with that of another: {tool}"


def _has_hip(rank: Rank) -> bool:
    return bool(rank["versions"].get("HIP of torch", "none") != "none")


def of_network(variable: str, there: Sequence[str]) -> str:
    """For a variable that names none of what is there."""
    if there:
        return f"unset {variable}, or name one of {', '.join(there)}"
    return f"unset {variable}"


def of_clock(rank: Rank) -> str:
    """For a clock that is not as the others."""
    if daemon := rank.get("clock_daemon"):
        return f"{daemon} runs there: ask it for its servers, and whether it reaches them"
    return "let chrony or ntpd run on that machine"


def of_disk(name: str, disk: Rank, is_full: bool) -> str:
    """For a place that cannot be written, is full, or else is slow."""
    room = "make room there, or " if is_full else ""
    if name != "working directory":
        return f"{room}set TMPDIR to another place than {disk['place']}"
    if "error" in disk:
        return "start in a directory that can be written"
    return f"{room}write checkpoints rarely, or elsewhere"


def of_limits(rank: Rank, key: str, enough: float) -> str:
    """For a soft limit below `enough`; a shell can raise it as far as the hard one."""
    if key == "shm_free":
        return of_shm(rank)
    hard, most = rank["hard"][key], MANY_FILES if key == "nofile" else float("inf")
    if hard is None or hard >= enough:
        most = most if hard is None else min(most, hard)
        return f"ulimit {FLAGS[key]} {'unlimited' if most == float('inf') else int(most)}"
    if rank["container"] == "Docker":
        return f"start the container with docker run --ulimit {key}={IN_DOCKER[key]}"
    return (
        f"its hard limit is {hard:,.0f}: raise {key} in /etc/security/limits.conf, and for the "
        f"daemon that starts jobs (Limit{key.upper()}= of systemd)"
    )


def of_shm(rank: Rank) -> str:
    """For too little room in /dev/shm, which loaders send batches through."""
    if rank["shm_size"] >= LARGE_SHM:
        return "remove what other programs have left in /dev/shm"
    if rank["container"] == "Kubernetes":
        return "mount an emptyDir with medium: Memory at /dev/shm"
    if rank["container"]:
        return "docker run --shm-size=8g, or --ipc=host; loaders send batches through it"
    if not rank["shm_size"]:
        return "mount -t tmpfs tmpfs /dev/shm; loaders send batches through it"
    return "make it larger: mount -o remount,size=8G /dev/shm; loaders send batches through it"
