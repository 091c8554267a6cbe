"""Which samples each rank sees, in three epochs, where the number is odd and where it is cut.

Source: PyTorch's documentation, torch.utils.data.distributed.DistributedSampler
"""

import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("gloo")
rank = dist.get_rank()
for drop_last in (False, True):
    dataset = list(range(37))
    sampler = DistributedSampler(dataset, shuffle=True, seed=7, drop_last=drop_last)
    loader = DataLoader(dataset, batch_size=5, sampler=sampler)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        batches = [batch.tolist() for batch in loader]
        print(f"final rank {rank} drop_last {drop_last} epoch {epoch} {batches}")
dist.destroy_process_group()
