"""A loop of one's own with Hugging Face accelerate."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True)
torch.manual_seed(5)
x = torch.linspace(-1, 1, 64).unsqueeze(1)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(x, 3 * x + 1), batch_size=8, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for _ in range(3):
    samples = 0
    for inputs, targets in loader:
        optimizer.zero_grad()
        accelerator.backward(torch.nn.functional.mse_loss(model(inputs), targets))
        optimizer.step()
        samples += len(inputs)
weight = accelerator.unwrap_model(model).weight.item()
rank, size = accelerator.process_index, accelerator.num_processes
print(f"rank {rank} of {size}: {samples} samples, weight {weight}")
accelerator.end_training()  # destroys the process group, too
