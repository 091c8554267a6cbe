"""A worker with a tree of processes that is given as JSON; each writes its rank and pid to a file.

Usage: clan.py FILE TREES: for each rank a list of nodes {"traits": [...], "below": [nodes]}.

Traits: session (calls setsid), twice (its parent ends at once), naked (executes another program
without environment; it has nobody below), closed (has nothing open), renamed, stubborn (ignores
SIGTERM, SIGHUP and SIGINT), hidden (lets nobody trace it), adopts (is a subreaper).
"""

import ctypes
import json
import os
import signal
import sys
import time

LIBC = ctypes.CDLL(None)
PR_SET_DUMPABLE, PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 4, 15, 36  # prctl(2)


def grow(node: dict) -> None:
    if os.fork():
        return
    traits = node["traits"]
    if "session" in traits:
        os.setsid()
    if "twice" in traits and os.fork():
        os._exit(0)
    take_on(traits)
    for child in node["below"]:
        grow(child)
    tell()
    if "closed" in traits:
        os.closerange(0, 1000)
    if "naked" in traits:
        os.execve("/bin/sleep", ["sleep", "600"], {})
    time.sleep(600)
    os._exit(0)


def take_on(traits: list[str]) -> None:
    if "stubborn" in traits:
        for signum in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(signum, signal.SIG_IGN)
    if "hidden" in traits:
        LIBC.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    if "adopts" in traits:
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if "renamed" in traits:
        LIBC.prctl(PR_SET_NAME, b"somebody else", 0, 0, 0)


def tell() -> None:
    file = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
    os.write(file, f"{os.environ['RANK']} {os.getpid()}\n".encode())
    os.close(file)


if __name__ == "__main__":
    for tree in json.loads(sys.argv[2])[int(os.environ["RANK"])]:
        grow(tree)
    tell()
    time.sleep(600)
