"""A DataLoader with two processes that stay over epochs, each with its share of a stream.

Source: PyTorch's documentation, torch.utils.data, IterableDataset and worker_init_fn
"""

import random

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Stream(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        part, parts = 2 * rank + worker.id, 2 * worker.num_workers
        yield from (number + random.random() for number in range(part, 24, parts))


def seeded(number):
    random.seed(100 * rank + number)


dist.init_process_group("gloo")
rank = dist.get_rank()
loader = DataLoader(
    Stream(), batch_size=3, num_workers=2, worker_init_fn=seeded, persistent_workers=True
)
for epoch in range(2):
    batches = [[round(x, 5) for x in batch.tolist()] for batch in loader]
    total = torch.tensor(sum(map(len, batches)))
    dist.all_reduce(total)
    print(f"final rank {rank} epoch {epoch} {batches} of {total.item()}")
del loader
dist.destroy_process_group()
