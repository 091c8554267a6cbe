"""DDP by hand as in client.py, with the lines that TraceML asks of a script, for STEPS steps."""

import os
from itertools import islice

import torch
import torch.distributed as dist
import traceml_ai as traceml
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from tests.culprit.client import BATCH, Model, Numbers, loss_of

traceml.init(mode="auto")
torch.manual_seed(0)
dist.init_process_group("gloo")
model = DistributedDataParallel(Model())
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for x, y in islice(DataLoader(Numbers(), BATCH), int(os.environ["STEPS"])):
    with traceml.trace_step(model):
        loss_of(model, x, y).backward()
        optimizer.step()
        optimizer.zero_grad()
