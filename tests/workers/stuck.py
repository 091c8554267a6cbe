"""Say "ready", then nothing more: a thread and its main thread wait for each other.

Usage: stuck.py [register] [fork] [handler]

With `register` it tells its stacks when the launcher asks, as the documentation says. With `fork`
it has a child that waits as well. With `handler` it catches SIGUSR2 for a purpose of its own.
"""

import os
import signal
import sys
import threading

lock = threading.Lock()


def wait_for_ever() -> None:
    with lock:
        pass


def in_a_thread() -> None:
    wait_for_ever()


if __name__ == "__main__":
    if "register" in sys.argv:
        from spawnlaunch import witness

        witness.begin()
    if "handler" in sys.argv:
        signal.signal(signal.SIGUSR2, lambda *_: os.write(1, b"saved\n"))
    lock.acquire()
    threading.Thread(target=in_a_thread, daemon=True).start()
    if "fork" in sys.argv and os.fork() == 0:
        signal.pause()
    os.write(1, f"ready {os.environ['RANK']}\n".encode())
    while True:
        signal.pause()
