"""A recorded error, in each attempt: the traceback of the rank that raised is in an error file.

Source: PyTorch's documentation, Error Propagation (docs/source/elastic/errors.rst)
"""

import os
import time

from torch.distributed.elastic.multiprocessing.errors import record


@record
def main():
    rank, attempt = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"]
    print(f"rank {rank} attempt {attempt}", flush=True)
    with open(f"begun.{rank}.{attempt}", "w"):
        pass
    while not all(os.path.exists(f"begun.{each}.{attempt}") for each in range(2)):
        time.sleep(0.01)
    if rank == 1:
        raise ValueError("rank 1 of this job cannot go on")
    time.sleep(10_000)


main()
