"""A recorded error: the traceback of the rank that raised is in an error file.

Source: PyTorch's documentation, Error Propagation (docs/source/elastic/errors.rst)
"""

import os
import time

from torch.distributed.elastic.multiprocessing.errors import record


@record
def main():
    rank = os.environ["RANK"]
    print(f"rank {rank} has begun", flush=True)
    with open(f"begun.{rank}", "w"):
        pass
    while not all(os.path.exists(f"begun.{each}") for each in "01"):
        time.sleep(0.01)
    if rank == "1":
        raise ValueError("rank 1 of this job cannot go on")
    time.sleep(10_000)


main()
