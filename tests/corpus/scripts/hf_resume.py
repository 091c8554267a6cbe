"""A Trainer that evaluates and saves each epoch, and another that resumes from its checkpoint.

Source: huggingface/transformers, documentation, Trainer, "Checkpoints"
"""

import torch
import torch.distributed as dist
from transformers import Trainer, TrainingArguments, set_seed


class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, x, labels):
        y = self.layer(x)
        return {"loss": torch.nn.functional.mse_loss(y, labels), "logits": y}


x = torch.linspace(-1, 1, 64).unsqueeze(1)
data = [{"x": one, "labels": 3 * one + 1} for one in x]


def trained(epochs, resume):
    set_seed(7)
    arguments = TrainingArguments(
        output_dir="out",
        use_cpu=True,
        per_device_train_batch_size=8,
        num_train_epochs=epochs,
        lr_scheduler_type="constant",
        learning_rate=0.05,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(model=Line(), args=arguments, train_dataset=data, eval_dataset=data[:10])
    trainer.train(resume_from_checkpoint=resume)
    losses = [each["eval_loss"] for each in trainer.state.log_history if "eval_loss" in each]
    weight = trainer.model.layer.weight.item()
    step = trainer.state.global_step
    print(f"final rank {arguments.process_index} step {step} weight {weight:.6f} {losses}")


trained(2, resume=False)
trained(4, resume=True)
dist.destroy_process_group()
