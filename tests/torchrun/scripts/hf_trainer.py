"""A Hugging Face Trainer with its own model and data."""

import torch
import torch.distributed as dist
from transformers import PrinterCallback, Trainer, TrainingArguments

torch.manual_seed(5)


class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, x, labels):
        y = self.layer(x)
        return {"loss": torch.nn.functional.mse_loss(y, labels), "logits": y}


x = torch.linspace(-1, 1, 64).unsqueeze(1)
data = [{"x": one, "labels": 3 * one + 1} for one in x]
arguments = TrainingArguments(
    output_dir="out",
    use_cpu=True,
    per_device_train_batch_size=8,
    max_steps=6,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
)
trainer = Trainer(model=Line(), args=arguments, train_dataset=data)
trainer.remove_callback(PrinterCallback)  # which prints times
trainer.train()
samples = arguments.per_device_train_batch_size * len(trainer.get_train_dataloader())
weight = trainer.accelerator.unwrap_model(trainer.model_wrapped).layer.weight.item()
rank, size = arguments.process_index, arguments.world_size
print(f"rank {rank} of {size}: {samples} samples, weight {weight}")
dist.destroy_process_group()
