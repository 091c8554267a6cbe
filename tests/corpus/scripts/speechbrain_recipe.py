"""What a recipe does: its command line, data that the main process prepares, a checkpointer.

Source: speechbrain/speechbrain, recipes/LibriSpeech/ASR/transformer/train.py
"""

import sys

import speechbrain
import torch
import torch.distributed as dist
from speechbrain.dataio.sampler import DistributedSamplerWrapper
from speechbrain.utils.checkpoints import Checkpointer
from speechbrain.utils.distributed import (
    ddp_all_reduce,
    ddp_init_group,
    get_rank,
    main_process_only,
    run_on_main,
)
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, RandomSampler, TensorDataset


def prepare(name):
    with open(name, "w") as file:
        file.write("\n".join(map(str, range(64))))


@main_process_only
def tell(line):
    print(line)


file, run_opts, overrides = speechbrain.parse_arguments(sys.argv[1:])
ddp_init_group(run_opts)
run_on_main(prepare, args=["data.csv"])
with open("data.csv") as lines:
    x = torch.tensor([[float(line) / 64] for line in lines])
torch.manual_seed(5)
dataset = TensorDataset(x, 3 * x + 1)
generator = torch.Generator().manual_seed(9)
sampler = DistributedSamplerWrapper(RandomSampler(dataset, generator=generator))
model = torch.nn.Linear(1, 1)
ddp = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
checkpointer = Checkpointer("save", {"model": model})
for epoch in range(2):
    for inputs, targets in DataLoader(dataset, batch_size=8, sampler=sampler):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(ddp(inputs), targets)
        loss.backward()
        optimizer.step()
    total = ddp_all_reduce(loss.detach(), dist.ReduceOp.SUM).item()
    tell(f"epoch {epoch} loss {total:.6f} {file} {overrides.strip()}")
checkpointer.save_checkpoint(name="last")
print(f"final rank {get_rank()} weight {model.weight.item():.6f}")
del ddp
dist.destroy_process_group()
