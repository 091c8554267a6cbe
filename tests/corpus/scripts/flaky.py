"""All workers fail until the third attempt.

Source: PyTorch's documentation, torchrun, "Fault-tolerant" (docs/source/elastic/run.rst)

They have no process group: under torchrun 2.13 the attempts share a store, where those of gloo may
find the ports of the attempt before.
"""

import os
import sys
import time

attempt, most = (os.environ[f"TORCHELASTIC_{name}"] for name in ("RESTART_COUNT", "MAX_RESTARTS"))
rank = int(os.environ["RANK"])
print(f"rank {rank} attempt {attempt} of {most}", flush=True)
with open(f"begun.{rank}.{attempt}", "w"):
    pass
while not all(os.path.exists(f"begun.{each}.{attempt}") for each in range(2)):
    time.sleep(0.01)
if int(attempt) < 2:
    sys.exit(1)
print(f"final rank {rank} attempt {attempt}")
