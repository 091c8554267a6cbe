"""PID 1 of a namespace: start a bystander and a launcher, each with a number that is asked for.

Usage: alike.py BYSTANDER GUARD COMMAND...

It tells whether the bystander still lives when the launcher has ended.
"""

import subprocess
import sys


def at(pid: int, command: list[str]) -> subprocess.Popen[bytes]:
    """A process with that number, which is the next one to be given."""
    with open("/proc/sys/kernel/ns_last_pid", "w") as file:
        file.write(str(pid - 1))
    started = subprocess.Popen(command)
    assert started.pid == pid
    return started


if __name__ == "__main__":
    bystander, guard = map(int, sys.argv[1:3])
    other = at(bystander, ["sleep", "600"])
    launcher = at(guard - 1, sys.argv[3:])
    status = launcher.wait()
    print("the bystander", "lives" if other.poll() is None else "is dead", flush=True)
    sys.exit(status)
