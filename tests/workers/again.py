"""A worker that says which attempt this is, and fails in some of them.

Usage: again.py FAILURES [RANK:]HOW STATUS [stay]

In the first FAILURES attempts the rank (each, if none is named) fails: HOW is exit or signal. The
others sleep, and in later attempts all end well, after SECONDS of the environment. With `stay` they
ignore SIGTERM, and so does a daemon of theirs.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

SHOWN = ("RANK", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS")


def fail(how: str, number: int) -> None:
    if how == "exit":
        os._exit(number)
    if how == "signal":
        signal.raise_signal(signal.Signals(number))


def daemon() -> None:
    between = os.fork()
    if between == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
    os.waitpid(between, 0)


def all_have_spoken(directory: Path) -> None:
    """Wait until each worker of this attempt has made its error file, which it does afterwards."""
    while len(list(directory.glob("*.json"))) < int(os.environ["LOCAL_WORLD_SIZE"]):
        time.sleep(0.01)


if __name__ == "__main__":
    failures, how, number, *stay = sys.argv[1:]
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    rank, _, how = how.rpartition(":")
    if stay:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        daemon()
    error_file = os.environ["TORCHELASTIC_ERROR_FILE"]
    facts = {name.lower(): os.environ[name] for name in SHOWN}
    fresh = not os.path.exists(error_file)
    os.write(1, f"ready {json.dumps({**facts, 'fresh': fresh, 'pid': os.getpid()})}\n".encode())
    open(error_file, "w").close()
    if attempt < int(failures):
        if rank in ("", os.environ["RANK"]):
            all_have_spoken(Path(error_file).parent)
            fail(how, int(number))
        time.sleep(600)
    time.sleep(float(os.environ.get("SECONDS", "0")))
