import os
import resource
import signal
import threading
import time

import torch

LAST = int(os.environ.get("WORLD_SIZE", 1)) - 1


class Line:
    passes = 0

    def model(self):
        return torch.nn.Linear(3, 64)

    def dataset(self, split):
        return torch.arange(72.0).view(24, 3).sin()

    def loss(self, model, batch):
        # The first pass is tried out before the first step.
        self.passes += model.training
        out = model(batch)
        if model.training and self.passes == 6 and os.environ.get("RANK") == str(LAST):
            out = self.spoilt(out)
        return (out - 1).square().sum(), len(batch)


class Nan(Line):
    def spoilt(self, out):
        return out * float("nan")


class Infinite(Line):
    class Backward(torch.autograd.Function):
        # Makes what the forward pass does not show.
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * float("inf")

    def spoilt(self, out):
        return self.Backward.apply(out)


class InfiniteOwn(Infinite):
    def optimizer(self, model, lr):
        return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


class Raises(Line):
    def spoilt(self, out):
        broken_by_the_user()


class FullDisk(Line):
    def model(self):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500))
        return super().model()


def broken_by_the_user():
    # As a communicator that waits for its peers: an ordinary exit would wait for the thread.
    threading.Thread(target=time.sleep, args=(1000,)).start()
    raise ValueError("the user's own mistake")
