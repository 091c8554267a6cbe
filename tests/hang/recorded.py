"""A worker that records its collectives with torch, and answers as a process group of NCCL's does.

Usage: recorded.py, under the launcher with --stack-on-usr2 and TORCH_FR_BUFFER_SIZE. The records
are torch's own, of gloo. A thread stands in for NCCL's, which listens to a pipe: what
torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp does (DumpPipe), and the file that it writes.
Rank 1 leaves out the third collective.
"""

import os
import threading

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace

from spawnlaunch import witness

RANK = os.environ["RANK"]


def listen(pipe: str) -> None:
    while True:
        with open(pipe, "rb") as file:  # until somebody has written, and closed it
            asked = file.read()
        if asked:
            with open(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + RANK, "wb") as file:
                file.write(_dump_fr_trace())


def main() -> None:
    witness.begin()
    dist.init_process_group("gloo")
    numbers = torch.ones(4)
    dist.all_reduce(numbers)
    dist.broadcast(numbers, src=0)
    pipe = f"{os.environ['TORCH_NCCL_DEBUG_INFO_PIPE_FILE']}{RANK}.pipe"
    os.mkfifo(pipe)
    _dump_fr_trace()  # the first one imports half of torch
    threading.Thread(target=listen, args=(pipe,), daemon=True).start()
    os.write(1, b"ready\n")
    if RANK == "1":
        threading.Event().wait()
    dist.all_reduce(numbers)


if __name__ == "__main__":
    main()
