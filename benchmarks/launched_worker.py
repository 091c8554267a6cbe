"""A worker of `benchmarks.launch`: print one line; then end, sleep, or die and print the time."""

import os
import sys
import time

mode = os.environ["BENCH_WORKER"]
rank = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("RANK", "0")
sys.stdout.write(f"worker {os.getpid()}\n")
sys.stdout.flush()
if mode == "sleep":
    time.sleep(600)
if mode == "die":
    time.sleep(1)  # all have started by now
    if rank == "1":
        os.write(1, f"dies {time.monotonic()}\n".encode())
        os._exit(7)
    time.sleep(600)
