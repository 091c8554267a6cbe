"""Metrics that are summed over all ranks when they are computed.

Source: Lightning-AI/torchmetrics, docs/source/pages/overview.rst, "DDP mode"
"""

import torch
import torch.distributed as dist
from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassConfusionMatrix

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
collection = MetricCollection([MulticlassAccuracy(4), MulticlassConfusionMatrix(4)])
mean = MeanMetric()
for _ in range(3 + rank):
    predicted, labels = torch.randn(10, 4).softmax(-1), torch.randint(0, 4, (10,))
    collection.update(predicted, labels)
    mean.update(predicted.max().item())
for name, value in collection.compute().items():
    print(f"final rank {rank} {name} {value.tolist()}")
print(f"final rank {rank} mean {mean.compute().item():.6f}")
dist.destroy_process_group()
