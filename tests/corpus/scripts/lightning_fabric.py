"""A loop of one's own by Fabric, which finds the world that torchrun has made.

Source: Lightning-AI/pytorch-lightning, examples/fabric/image_classifier/train_fabric.py
"""

import os

import torch
from lightning.fabric import Fabric
from torch.utils.data import DataLoader, TensorDataset

fabric = Fabric(
    accelerator="cpu", strategy="ddp", devices=int(os.environ["LOCAL_WORLD_SIZE"]),
    num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
)  # fmt: skip
fabric.launch()
fabric.seed_everything(42, verbose=False)
x = torch.randn(48, 5)
model = torch.nn.Linear(5, 1)
model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
loader = fabric.setup_dataloaders(DataLoader(TensorDataset(x), batch_size=4, shuffle=True))
for epoch in range(3):
    for (inputs,) in loader:
        optimizer.zero_grad()
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        fabric.backward(loss)
        optimizer.step()
    mean = fabric.all_reduce(loss.detach(), reduce_op="mean").item()
    fabric.print(f"epoch {epoch} loss {mean:.6f}")
fabric.save("model.ckpt", {"model": model, "epoch": epoch})
print(f"final rank {fabric.global_rank} of {fabric.world_size} {model.weight.sum().item():.6f}")
torch.distributed.destroy_process_group()
