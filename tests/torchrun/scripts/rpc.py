"""A parameter server by RPC: rank 0 has the parameters, the other sends gradients and fetches.

Source: pytorch/examples, distributed/rpc/batch/parameter_server.py
"""

import os

import torch
from torch.distributed import rpc


class Server:
    def __init__(self):
        torch.manual_seed(0)
        self.model = torch.nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def get_model(self):
        return self.model

    def update(self, gradients):
        for parameter, gradient in zip(self.model.parameters(), gradients, strict=True):
            parameter.grad = gradient
        self.optimizer.step()
        return self.model


def train(server):
    model = server.rpc_sync().get_model()
    for step in range(4):
        model.zero_grad()
        loss = (model(torch.full((2, 4), float(step))) - 1).square().mean()
        loss.backward()
        model = server.rpc_sync().update([parameter.grad for parameter in model.parameters()])
        print(f"step {step} loss {loss.item():.6f}")


rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
rpc.init_rpc(f"worker{rank}", rank=rank, world_size=size)
if rank == 0:
    server = rpc.RRef(Server())
    rpc.rpc_sync("worker1", train, args=(server,))
    print([round(weight, 6) for weight in server.local_value().model.weight[0].tolist()])
rpc.shutdown()
