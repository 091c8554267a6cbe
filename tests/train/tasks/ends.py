import os
import time

import torch
from torch.utils.data import get_worker_info


class Points:
    def __len__(self):
        return 64

    def __getitem__(self, index):
        if index == 63 and os.environ["HOW"] == "stuck" and get_worker_info() is not None:
            os.write(1, b"\nstuck\n")  # whatever else is on this line: its rank prints as well
            time.sleep(3600)
        return torch.ones(1)


class Ends:
    passes = 0

    def model(self):
        return torch.nn.Linear(1, 1)

    def dataset(self, split):
        return Points()

    def loss(self, model, batch):
        self.passes += model.training
        if self.passes == 5 and os.environ["HOW"] in ("raises", "unread", "quits"):
            raise SystemExit(3) if os.environ["HOW"] == "quits" else ValueError("the user's own")
        return model(batch).sum(), len(batch)
