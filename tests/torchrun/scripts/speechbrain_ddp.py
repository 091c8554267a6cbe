"""What a SpeechBrain recipe does with its command line, and its utilities for several processes.

A Brain itself cannot: release 1.1 passes device_ids=["cpu"], which DistributedDataParallel refuses.
"""

import sys

import speechbrain
import torch
import torch.distributed as dist
from speechbrain.dataio.sampler import DistributedSamplerWrapper
from speechbrain.utils.distributed import ddp_init_group, get_rank, if_main_process, run_on_main
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

_, run_opts, _ = speechbrain.parse_arguments(sys.argv[1:])
ddp_init_group(run_opts)
prepared = []
run_on_main(prepared.append, args=["data"])
assert bool(prepared) == if_main_process() == (get_rank() == 0)
torch.manual_seed(5)
x = torch.linspace(-1, 1, 64).unsqueeze(1)
dataset = TensorDataset(x, 3 * x + 1)
sampler = DistributedSamplerWrapper(RandomSampler(dataset))
model = DistributedDataParallel(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
samples = 0
for inputs, targets in DataLoader(dataset, batch_size=8, sampler=sampler):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(inputs), targets).backward()
    optimizer.step()
    samples += len(inputs)
weight = model.module.weight.item()
print(f"rank {get_rank()} of {dist.get_world_size()}: {samples} samples, weight {weight}")
del model  # before its group: else gloo may hang or abort at the end
dist.destroy_process_group()
