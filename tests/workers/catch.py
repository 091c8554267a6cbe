"""Say which signals arrive. SIGTERM ends it with status 85, as one that has saved would end."""

import os
import signal
import sys
import time

CAUGHT = [signal.Signals[f"SIG{name}"] for name in sys.argv[1:]]


def caught(signum: int, _: object) -> None:
    os.write(1, f"{signal.Signals(signum).name} {os.environ['RANK']}\n".encode())
    if signum == signal.SIGTERM:
        os._exit(85)


for each in CAUGHT:
    signal.signal(each, caught)
os.write(1, f"ready {os.environ['RANK']}\n".encode())
while True:
    time.sleep(1)
