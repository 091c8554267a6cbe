"""DistributedDataParallel with a sampler; a snapshot of each epoch, from which an attempt resumes.

With --dies rank 1 is killed after its second epoch of the first attempt.
Source: pytorch/examples, distributed/ddp-tutorial-series/multigpu_torchrun.py
"""

import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank, attempt = dist.get_rank(), os.environ["TORCHELASTIC_RESTART_COUNT"]
torch.manual_seed(rank)  # DistributedDataParallel makes the weights equal
x = torch.linspace(-1, 1, 64).unsqueeze(1)
data = TensorDataset(x, 3 * x + 1)
model, first = torch.nn.Linear(1, 1), 0
if os.path.exists("snapshot.pt"):
    snapshot = torch.load("snapshot.pt")
    model.load_state_dict(snapshot["model"])
    first = snapshot["epochs"]
ddp = DistributedDataParallel(model)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
sampler = DistributedSampler(data)
for epoch in range(first, 4):
    sampler.set_epoch(epoch)
    for inputs, targets in DataLoader(data, batch_size=8, sampler=sampler):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(ddp(inputs), targets)
        loss.backward()
        optimizer.step()
    print(f"rank {rank} epoch {epoch} loss {loss.item():.6f} weight {model.weight.item():.6f}")
    if rank == 0:
        torch.save({"model": model.state_dict(), "epochs": epoch + 1}, "snapshot.new")
        os.rename("snapshot.new", "snapshot.pt")
    dist.barrier()
    if "--dies" in sys.argv and (rank, attempt, epoch) == (1, "0", 1):
        os.kill(os.getpid(), signal.SIGKILL)
print(f"rank {rank} of {dist.get_world_size()} is launched: {dist.is_torchelastic_launched()}")
del ddp  # before its group: else gloo may hang or abort at the end
dist.destroy_process_group()
