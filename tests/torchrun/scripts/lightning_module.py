"""A LightningModule, with the sizes of the world as torchrun tells them."""

import os

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset


class Line(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.samples = 0

    def training_step(self, batch, _):
        inputs, targets = batch
        self.samples += len(inputs)
        return torch.nn.functional.mse_loss(self.layer(inputs), targets)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


torch.manual_seed(5)
x = torch.linspace(-1, 1, 64).unsqueeze(1)
trainer = lightning.Trainer(
    accelerator="cpu",
    strategy="ddp",
    devices=int(os.environ["LOCAL_WORLD_SIZE"]),
    num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
    max_epochs=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
model = Line()
trainer.fit(model, DataLoader(TensorDataset(x, 3 * x + 1), batch_size=8, shuffle=True))
rank, size = trainer.global_rank, trainer.world_size
weight = model.layer.weight.item()
print(f"rank {rank} of {size}: {model.samples} samples, weight {weight}")
torch.distributed.destroy_process_group()
