"""The elastic loop over images: an attempt goes on from the checkpoint of the one before it.

Source: pytorch/elastic, examples/imagenet/main.py
"""

import os

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.elastic.utils.data import ElasticDistributedSampler
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


@record
def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    dataset = TensorDataset(torch.randn(64, 3, 8, 8), torch.randint(0, 4, (64,)))
    body = (torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(144, 4))
    model = DistributedDataParallel(torch.nn.Sequential(*body))
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    sampler, start = ElasticDistributedSampler(dataset), 0
    if os.path.exists("checkpoint.pth"):
        state = torch.load("checkpoint.pth")
        start = state["epoch"] + 1
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        print(f"rank {rank} goes on with epoch {start}")
    for epoch in range(start, 4):
        sampler.set_epoch(epoch)
        for images, labels in DataLoader(dataset, batch_size=8, sampler=sampler):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            state = {"epoch": epoch, "model": model.state_dict()}
            torch.save({**state, "optimizer": optimizer.state_dict()}, "checkpoint.tmp")
            os.rename("checkpoint.tmp", "checkpoint.pth")
        dist.barrier()
    print(f"final rank {rank} {sum(p.sum() for p in model.parameters()).item():.6f}")
    del model
    dist.destroy_process_group()


main()
