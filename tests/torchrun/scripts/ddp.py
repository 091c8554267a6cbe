"""DistributedDataParallel with a sampler, and a snapshot of each epoch from which it resumes.

With --dies rank 1 is killed in the first attempt, when there is a snapshot. That attempt has no
process group: under torchrun 2.13 the attempts share a store, in which gloo may find the ports of
the attempt before.
Source: pytorch/examples, distributed/ddp-tutorial-series/multigpu_torchrun.py
"""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def save(epochs):
    torch.save({"model": model.state_dict(), "epochs": epochs}, "snapshot.new")
    os.rename("snapshot.new", "snapshot.pt")


rank = int(os.environ["RANK"])
torch.manual_seed(rank)  # DistributedDataParallel makes the weights equal
model, first = torch.nn.Linear(1, 1), 0
if "--dies" in sys.argv and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    if rank == 0:
        save(1)
    while rank == 0 or not os.path.exists("snapshot.pt"):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
dist.init_process_group("gloo")
if os.path.exists("snapshot.pt"):
    snapshot = torch.load("snapshot.pt")
    model.load_state_dict(snapshot["model"])
    first = snapshot["epochs"]
dist.barrier()
ddp = DistributedDataParallel(model)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
x = torch.linspace(-1, 1, 64).unsqueeze(1)
data = TensorDataset(x, 3 * x + 1)
sampler = DistributedSampler(data)
for epoch in range(first, 3):
    sampler.set_epoch(epoch)
    for inputs, targets in DataLoader(data, batch_size=8, sampler=sampler):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(ddp(inputs), targets)
        loss.backward()
        optimizer.step()
    print(f"rank {rank} epoch {epoch} loss {loss.item():.6f} weight {model.weight.item():.6f}")
    if rank == 0:
        save(epoch + 1)
print(f"rank {rank} of {dist.get_world_size()} is launched: {dist.is_torchelastic_launched()}")
del ddp  # before its group: else gloo may hang or abort at the end
dist.destroy_process_group()
