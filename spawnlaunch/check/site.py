"""What of a site would stop a job of a thousand nodes: limits of each node, and of its Slurm.

Sources: getrlimit(2); networking/ip-sysctl.rst for ip_local_port_range, sysctl/net.rst for
somaxconn, sysctl/kernel.rst for pid_max and threads-max, cgroup-v1/pids.rst and cgroup-v2.rst;
slurm.conf(5) for KillWait and KillOnBadExit. What cannot be read is not known: nothing is said.
"""

import resource
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from spawnlaunch import failures, reading
from spawnlaunch.check.verdict import OK, WARN, Verdict
from spawnlaunch.node import cgroup, sysfs
from spawnlaunch.world import host
from spawnlaunch.world.managers.slurm import site

NODES = 1000
OWN_FILES = 64  # that a launcher has open beside its connections
EPHEMERAL = "32768 60999"  # the kernel's own range
KILL_BAD_EXIT = "SLURM_KILL_BAD_EXIT"

Rank = Mapping[str, Any]


class Limit(NamedTuple):
    """A figure of a node: what it must be at least, and what to do where it is less."""

    key: str
    words: str
    least: int
    remedy: str


LIMITS = (
    Limit("files", "{:,} open files (ulimit -Hn), for a launcher that all others connect to",
          NODES + OWN_FILES, "raise nofile in /etc/security/limits.conf, and for the daemon that "
          "starts jobs (LimitNOFILE= of systemd)"),
    Limit("backlog", "{:,} connections that wait to be taken (net.core.somaxconn)", NODES,
          "sysctl -w net.core.somaxconn=4096"),
    Limit("ports", "{:,} ports for outgoing connections (net.ipv4.ip_local_port_range)", 4096,
          f"sysctl -w net.ipv4.ip_local_port_range='{EPHEMERAL}'"),
    Limit("free_ports", "{:,} ports beside these, for rank 0 to listen on", 1,
          f"sysctl -w net.ipv4.ip_local_port_range='{EPHEMERAL}'"),
    Limit("processes", "{:,} processes and threads (kernel.pid_max, kernel.threads-max, what "
          "pids.max of the control group leaves)", 4096,
          "sysctl -w kernel.pid_max=4194304, or let the job have more (pids.max)"),
    Limit("kill_wait_s", "{} s from SIGTERM to SIGKILL (KillWait in slurm.conf)", 10,
          "scontrol show config shows it; ask for KillWait=30, or save checkpoints more often"),
)  # fmt: skip


def look(environ: Mapping[str, str]) -> dict[str, Any]:
    """The figures of this node; None: not known, or not limited."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    ports = [*map(int, (reading.file_text(host.EPHEMERAL) or "").split())]
    low, high = ports or (0, -1)
    # With a launcher on each node these end one another.
    is_task = environ.get("SLURM_STEP_NUM_TASKS", "1") == environ.get("WORLD_SIZE") != "1"
    return {
        "files": None if hard == resource.RLIM_INFINITY else hard,
        "backlog": sysfs.number("/proc/sys/net/core/somaxconn"),
        "ports": high - low + 1 if ports else None,
        "free_ports": 65536 - 1024 - max(0, high - max(low, 1024) + 1),
        "processes": _processes(),
        "kill_wait_s": site.kill_wait_s(environ) if "SLURM_JOB_ID" in environ else None,
        "ends_all": site.kills_on_bad_exit(environ, KILL_BAD_EXIT) if is_task else None,
    }


def _processes() -> int | None:
    found = [sysfs.number(f"/proc/sys/kernel/{name}") for name in ("pid_max", "threads-max")]
    for place in cgroup.directories("", "pids"):
        most, now = (sysfs.number(f"{place}/pids.{name}") for name in ("max", "current"))
        found.append(most - now if most is not None and now is not None else None)
    return min((each for each in found if each is not None), default=None)


def verdicts(ranks: Sequence[Rank]) -> Iterator[Verdict]:
    """A line for each limit that is known, of the nodes where it is least."""
    for limit in LIMITS:
        known = [(one["site"][limit.key], one["host"]) for one in ranks]
        known = [(value, host) for value, host in known if value is not None]
        if not known:
            continue
        said = limit.words.format(min(known)[0])
        low = sorted({host for value, host in known if value < limit.least})
        if low:
            where = ", ".join(failures.folded(low))
            said = f"{where}: {said}; a job of {NODES:,} nodes needs {limit.least:,}"
        yield Verdict("site", WARN if low else OK, said, limit.remedy if low else "")
    if waiting := [one["rank"] for one in ranks if one["site"]["ends_all"] is False]:
        said = "nothing here says that srun ends the step when one rank dies: the others wait"
        yield Verdict("site", WARN, said, f"export {KILL_BAD_EXIT}=1", tuple(waiting))
