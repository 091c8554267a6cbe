"""PID 1 of a namespace, which sees every process there: who is left after a launch, and who is not?

Usage: oracle.py FILE COUNT VICTIM SIGNAL COMMAND...

It starts bystanders and the launcher of COMMAND, waits until COUNT processes have written to FILE
(clan.py), and sends SIGNAL to VICTIM, which is the launcher, the guard or a worker. It prints JSON:
"left" (command lines), and "bystanders" (how many live).
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

MARK = "SPAWNLAUNCH_WORKER"


def until(holds) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, Path(FILE).read_text()
        time.sleep(0.01)


def told() -> list[tuple[int, int]]:
    """Rank and pid of each process."""
    return [tuple(map(int, line.split())) for line in Path(FILE).read_text().splitlines()]


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alike(worker: int) -> subprocess.Popen:
    """Somebody else's process that bears the mark of the worker."""
    words = Path(f"/proc/{worker}/environ").read_text().split("\0")
    mark = next(word.partition("=")[2] for word in words if word.startswith(MARK))
    return subprocess.Popen(["sleep", "600"], env={MARK: mark}, user=65534)


def end(launcher: subprocess.Popen, victim: str, signum: int) -> None:
    (guard,) = children(launcher.pid)
    worker = children(guard)[0]
    os.kill({"launcher": launcher.pid, "guard": guard, "worker": worker}[victim], signum)
    launcher.wait(100)


def others(ours: set[int]) -> list[int]:
    """All processes but these, and but zombies, which are ours to reap."""
    seen = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return [pid for pid in seen if pid not in ours and state(pid) not in "ZX"]


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    except OSError:
        return "X"


if __name__ == "__main__":
    FILE, count, victim, signum = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    Path(FILE).touch()
    shell = subprocess.Popen(["sleep", "600"])  # in the launcher's session, as a shell's job is
    launcher = subprocess.Popen(sys.argv[5:])
    until(lambda: len(told()) == count)
    guard = children(launcher.pid)[0]
    bystanders = [shell, alike(children(guard)[0])]
    end(launcher, victim, signum)
    ours = {os.getpid(), *(each.pid for each in bystanders)}
    deadline = time.monotonic() + 20
    while (left := others(ours)) and time.monotonic() < deadline:
        time.sleep(0.01)
    names = [Path(f"/proc/{pid}/cmdline").read_text(errors="replace") for pid in left]
    print(json.dumps({"left": names, "bystanders": sum(x.poll() is None for x in bystanders)}))
