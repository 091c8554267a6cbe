"""Measure the memory of a launcher, alone and as one of several."""

import re
import subprocess
import sys
from pathlib import Path

from benchmarks.processes import children, finish, lines, start
from tests.support.ports import free_port


def pss_mib(pids: list[int]) -> float:
    """The memory of some processes, with their part of shared pages (PSS)."""
    texts = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids]
    return sum(int(re.findall(r"^Pss: +(\d+)", text, re.M)[0]) for text in texts) / 1024


def launcher_mib() -> float:
    """The extra memory of a member over a launcher of one node, guards included, in MiB."""
    program = ("--no-python", "sh", "-c", "echo began; exec sleep 600")
    spawnlaunch = (sys.executable, "-m", "spawnlaunch", "--quiet", "--nproc=1")
    several = ("--nnodes=2", f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--rdzv-backend=static")
    interface = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    launchers: list[subprocess.Popen[bytes]] = []
    try:
        for flags in ((), (*several, "--node-rank=0"), (*several, "--node-rank=1")):
            launchers.append(start((*spawnlaunch, *flags, *program), interface))
        for launcher in launchers:
            lines(launcher, 1, "began")
        single, _, member = (pss_mib([each.pid, *children(each.pid)]) for each in launchers)
        return member - single
    finally:
        for launcher in launchers:
            finish(launcher)
