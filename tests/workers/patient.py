"""Says that it is ready, and ends with status 0 when a file is there. On SIGTERM it says so, and
saves until the file is there: then its status is 85. Usage: patient.py FILE."""

import os
import signal
import sys
import time

GO, RANK = sys.argv[1], os.environ["RANK"]


def say(word: str) -> None:
    os.write(1, f"{word} {RANK}\n".encode())


def wait() -> None:
    while not os.path.exists(GO):
        time.sleep(0.02)


def save(*_: object) -> None:
    say("saving")
    wait()
    say("saved")
    os._exit(85)


signal.signal(signal.SIGTERM, save)
say("ready")
wait()
say("went")
