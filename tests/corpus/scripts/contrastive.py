"""A contrastive loss over the features of all ranks, through a gather that has gradients.

Source: mlfoundations/open_clip, src/open_clip/loss.py, gather_features
"""

import torch
import torch.distributed as dist
import torch.distributed.nn
from torch.nn.functional import cross_entropy, normalize
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(12, 6))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range(4):
    torch.manual_seed(10 * step + rank)
    images, texts = normalize(model(torch.randn(16, 12)), dim=-1).chunk(2)
    all_images = torch.cat(dist.nn.all_gather(images.contiguous()))
    all_texts = torch.cat(dist.nn.all_gather(texts.contiguous()))
    labels = torch.arange(len(images)) + len(images) * rank
    by_image = cross_entropy(10 * images @ all_texts.T, labels)
    loss = (by_image + cross_entropy(10 * texts @ all_images.T, labels)) / 2
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"rank {rank} step {step} loss {loss.item():.5f}")
print(f"final rank {rank} {model.module.weight.sum().item():.5f}")
del model
dist.destroy_process_group()
