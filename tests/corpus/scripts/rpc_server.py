"""A parameter server by RPC: rank 0 has the parameters, the others send gradients and fetch.

Source: pytorch/examples, distributed/rpc/batch/parameter_server.py
"""

import os
import threading

import torch
from torch.distributed import rpc

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


class Server:
    def __init__(self, trainers):
        torch.manual_seed(0)
        self.model, self.lock = torch.nn.Linear(4, 1), threading.Lock()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.trainers, self.given, self.future = trainers, 0, torch.futures.Future()
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros_like(parameter)

    def get_model(self):
        return self.model

    @staticmethod
    @rpc.functions.async_execution
    def update_and_fetch(server, gradients):
        self = server.local_value()
        with self.lock:
            future, self.given = self.future, self.given + 1
            for parameter, gradient in zip(self.model.parameters(), gradients, strict=True):
                parameter.grad += gradient / self.trainers
            if self.given == self.trainers:
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=False)
                self.given, self.future = 0, torch.futures.Future()
                future.set_result(self.model)
        return future


def train(server, number):
    model = server.rpc_sync().get_model()
    for step in range(4):
        x = torch.full((2, 4), float(number + step))
        model.zero_grad()
        loss = (model(x) - 1).square().mean()
        loss.backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        model = rpc.rpc_sync(server.owner(), Server.update_and_fetch, args=(server, gradients))
        print(f"trainer {number} step {step} loss {loss.item():.6f}")


name = "ps" if rank == 0 else f"trainer{rank}"
rpc.init_rpc(name, rank=rank, world_size=size)
if rank == 0:
    server = rpc.RRef(Server(size - 1))
    ends = [rpc.rpc_async(f"trainer{n}", train, args=(server, n)) for n in range(1, size)]
    torch.futures.wait_all(ends)
    print(f"final {[round(w, 6) for w in server.local_value().model.weight[0].tolist()]}")
rpc.shutdown()
