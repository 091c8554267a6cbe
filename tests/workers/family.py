"""A worker with children of all kinds, which inherit what it has open: its end tells they are gone.

Usage: family.py [KIND...] [-- HOW_IT_ENDS...]

Kinds: plain, stubborn (ignores SIGTERM), session (calls setsid), daemon (setsid and double fork),
naked (a daemon that has also given up its environment).
Endings: sleep (the default), exit STATUS, stay (and ignore SIGTERM). Each may have "RANK:" in
front: the other ranks then sleep.
"""

import os
import signal
import sys
import time


def child(*, stubborn: bool = False, session: bool = False, twice: bool = False) -> bool:
    """Fork; True in the child, or in the grandchild whose parent has gone."""
    if os.fork():
        return False
    if stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if session:
        os.setsid()
    if twice and os.fork():
        os._exit(0)
    return True


def start(kind: str) -> None:
    if child(
        stubborn=kind == "stubborn",
        session=kind in ("session", "daemon", "naked"),
        twice=kind in ("daemon", "naked"),
    ):
        if kind == "naked":
            os.execve("/bin/sleep", ["sleep", "600"], {})
        time.sleep(600)
        os._exit(0)


def end(how: str, number: int) -> None:
    if how == "exit":
        os._exit(number)
    if how == "stay":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say(f"ready {os.environ['RANK']}")
    time.sleep(600)


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    words = [*sys.argv[1:], "--"]
    cut = words.index("--")
    for kind in words[:cut]:
        start(kind)
    how, number = [*words[cut + 1 :], "sleep", "0"][:2] if words[cut + 1 :] != ["--"] else ("", "0")
    rank, colon, what = how.rpartition(":")
    mine = not colon or rank == os.environ["RANK"]
    if mine and what == "exit" and colon:
        time.sleep(0.3)  # so that the others have started
    end(what if mine else "sleep", int(number) if number.isdigit() else 0)
