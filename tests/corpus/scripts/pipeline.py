"""Two stages of a pipeline, through which micro-batches go by the schedule of GPipe.

Source: pytorch/tutorials, intermediate_source/pipelining_tutorial.rst
"""

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
layers = [torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)]
stage = PipelineStage(layers[rank], rank, size, torch.device("cpu"))
schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=torch.nn.functional.mse_loss)
x, y = torch.randn(16, 8), torch.randn(16, 8)
optimizer = torch.optim.SGD(layers[rank].parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    if rank == 0:
        schedule.step(x)
    else:
        losses = []
        schedule.step(target=y, losses=losses)
        print(f"step {step} losses {[round(loss.item(), 6) for loss in losses]}")
    optimizer.step()
print(f"rank {rank} {layers[rank].weight.sum().item():.6f}")
dist.destroy_process_group()
