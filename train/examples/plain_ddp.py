"""The training loop to read first: data-parallel, all of it, with nothing but PyTorch.

    python -m spawnlaunch --nproc 2 train/examples/plain_ddp.py

Every rank runs this file from top to bottom. Each has a copy of the model and reads a part of the
samples; the backward pass averages the gradients of all ranks, so that the copies stay the same.
In the loop of this package, ``../trainer.py`` has a step in the same order as here.
"""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EPOCHS, BATCH, LR = 6, 16, 1e-2  # samples per rank and step


def samples(seed: int) -> TensorDataset:
    """Points of a plane, and whether their coordinates have the same sign."""
    points = torch.randn(960, 2, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(points, (points.prod(dim=1) > 0).long())


def network() -> torch.nn.Module:
    """Points (batch, 2) to logits (batch, 2)."""
    torch.manual_seed(0)  # the same weights on every rank
    return torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))


def main() -> None:
    """Train for some epochs, and count on each how many held-out samples are right."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])  # set by the launcher
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")

    model = DistributedDataParallel(network().to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR)
    training, held_out = samples(seed=1), samples(seed=2)
    sampler = DistributedSampler(training, shuffle=True)  # which samples are this rank's
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)  # else every epoch has the order of the first
        for x, y in DataLoader(training, BATCH, sampler=sampler):
            loss = F.cross_entropy(model(x.to(device)), y.to(device))  # forward
            optimizer.zero_grad()
            loss.backward()  # backward; meanwhile the gradients are averaged over the ranks
            optimizer.step()  # update, the same on every rank

        right = torch.zeros((), device=device)
        mine = range(rank, len(held_out), size)  # each sample once, whatever the number of ranks
        with torch.no_grad():
            for x, y in DataLoader(torch.utils.data.Subset(held_out, mine), BATCH):
                right += (model.module(x.to(device)).argmax(dim=1) == y.to(device)).sum()
        dist.all_reduce(right)
        if rank == 0:
            print(f"epoch {epoch + 1}: accuracy {right.item() / len(held_out):.3f}", flush=True)
    del model  # before its group: else gloo may hang or abort at the end
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
