"""Accelerator in a loop of one's own: accumulated gradients, gathered metrics, a saved state.

Source: huggingface/accelerate, examples/nlp_example.py and examples/by_feature/checkpointing.py
"""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
set_seed(42)
x = torch.randn(68, 4)
dataset = TensorDataset(x, (x.sum(1) > 0).long())
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=10)
model, optimizer, scheduler, train, test = accelerator.prepare(
    model, optimizer, scheduler,
    DataLoader(dataset, batch_size=4, shuffle=True), DataLoader(dataset, batch_size=5),
)  # fmt: skip
for epoch in range(3):
    model.train()
    for inputs, labels in train:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    model.eval()
    right = total = 0
    for inputs, labels in test:
        predicted = model(inputs).argmax(1)
        predicted, labels = accelerator.gather_for_metrics((predicted, labels))
        right, total = right + (predicted == labels).sum().item(), total + len(labels)
    accelerator.print(f"epoch {epoch}: {right} of {total}")
accelerator.save_state("state")
accelerator.wait_for_everyone()
accelerator.load_state("state")
weight = accelerator.unwrap_model(model)[0].weight.sum().item()
print(f"final rank {accelerator.process_index} weight {weight:.6f} lr {scheduler.get_last_lr()}")
accelerator.end_training()
