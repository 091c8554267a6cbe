"""A Trainer class with snapshots: which epoch has run is read at the start.

Source: pytorch/examples, distributed/ddp-tutorial-series/multigpu_torchrun.py
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Trainer:
    def __init__(self, model, data, optimizer, save_every, path):
        self.rank, self.data, self.optimizer = int(os.environ["RANK"]), data, optimizer
        self.save_every, self.path, self.epochs_run, self.model = save_every, path, 0, model
        if os.path.exists(path):
            snapshot = torch.load(path)
            self.model.load_state_dict(snapshot["MODEL_STATE"])
            self.epochs_run = snapshot["EPOCHS_RUN"]
            print(f"Resuming training from snapshot at Epoch {self.epochs_run}")
        self.model = DistributedDataParallel(self.model)

    def train(self, max_epochs):
        for epoch in range(self.epochs_run, max_epochs):
            self.data.sampler.set_epoch(epoch)
            print(f"[GPU{self.rank}] Epoch {epoch} | Batchsize: 32 | Steps: {len(self.data)}")
            for source, targets in self.data:
                self.optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(self.model(source), targets)
                loss.backward()
                self.optimizer.step()
            if self.rank == 0 and epoch % self.save_every == 0:
                state = {"MODEL_STATE": self.model.module.state_dict(), "EPOCHS_RUN": epoch + 1}
                torch.save(state, self.path + ".new")
                os.rename(self.path + ".new", self.path)
            dist.barrier()


parser = argparse.ArgumentParser()
parser.add_argument("total_epochs", type=int)
parser.add_argument("save_every", type=int)
parser.add_argument("--batch_size", default=32, type=int)
args = parser.parse_args()
dist.init_process_group("gloo")
torch.manual_seed(3)
dataset = TensorDataset(torch.rand(256, 20), torch.rand(256, 1))
model = torch.nn.Linear(20, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
loader = DataLoader(dataset, args.batch_size, sampler=DistributedSampler(dataset))
trainer = Trainer(model, loader, optimizer, args.save_every, "snapshot.pt")
trainer.train(args.total_epochs)
print(f"final rank {trainer.rank} weight {model.weight.sum().item():.6f}")
del trainer
dist.destroy_process_group()
