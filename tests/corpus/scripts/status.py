"""One rank ends with a status of its own.

Source: PyTorch's documentation, torchrun (docs/source/elastic/run.rst), and Python's sys.exit
"""

import os
import sys
import time

rank, status = int(os.environ["RANK"]), int(sys.argv[1])
print(f"rank {rank} has begun", flush=True)
with open(f"begun.{rank}", "w"):
    pass
while not all(os.path.exists(f"begun.{each}") for each in range(2)):
    time.sleep(0.01)
if rank == 1:
    sys.exit(status)
time.sleep(10_000 if status else 0)
