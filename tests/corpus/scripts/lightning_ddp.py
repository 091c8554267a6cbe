"""A LightningModule under Trainer with strategy ddp; it is validated and saved.

Source: Lightning-AI/pytorch-lightning, examples/pytorch/basics/autoencoder.py
"""

import os

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset


class Autoencoder(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = torch.nn.Linear(6, 2), torch.nn.Linear(2, 6)

    def _loss(self, batch):
        return torch.nn.functional.mse_loss(self.decoder(self.encoder(batch[0])), batch[0])

    def training_step(self, batch, _):
        return self._loss(batch)

    def validation_step(self, batch, _):
        self.log("val_loss", self._loss(batch), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


lightning.seed_everything(1, verbose=False)
data = TensorDataset(torch.randn(64, 6))
trainer = lightning.Trainer(
    accelerator="cpu",
    strategy="ddp",
    devices=int(os.environ["LOCAL_WORLD_SIZE"]),
    num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
    max_epochs=2,
    logger=False,
    callbacks=[lightning.pytorch.callbacks.ModelCheckpoint(dirpath="saved", filename="last")],
    enable_progress_bar=False,
    enable_model_summary=False,
)
model = Autoencoder()
trainer.fit(model, DataLoader(data, 8, shuffle=True), DataLoader(data, 8))
loss = trainer.callback_metrics["val_loss"].item()
print(f"final rank {trainer.global_rank} of {trainer.world_size} {loss:.6f} {trainer.global_step}")
torch.distributed.destroy_process_group()
