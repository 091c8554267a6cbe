import os
import pathlib

import numpy as np
import torch

COUNT, WIDTH = 80, 1 << 20


class Rows:
    def __init__(self, rows, kind):
        self.rows, self.kind = rows, kind

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = np.asarray(self.rows[index])
        total = int(row.sum())  # of all bytes, so that all pages are there
        if row.flags.writeable and self.kind != "mapped":
            row[0] += 1  # in place, which is nobody's business but this process's
        private = sum(
            int(line.split()[1])
            for line in pathlib.Path("/proc/self/smaps_rollup").read_text().splitlines()
            if line.startswith("Private")
        )
        pathlib.Path(f"private-{os.getpid()}").write_text(str(private))
        return torch.tensor([total], dtype=torch.float64)


class Shares:
    def __init__(self, kind: str):
        self.kind = kind
        if kind == "mapped":
            self.rows = np.memmap("rows.bin", np.uint8, "r", shape=(COUNT + 2, WIDTH))[1:-1]
        else:
            rows = np.fromfile("rows.bin", np.uint8).reshape(COUNT + 2, WIDTH)[1:-1]
            self.rows = list(torch.from_numpy(rows))

    def model(self):
        return torch.nn.Linear(1, 1)

    def dataset(self, split):
        return Rows(self.rows, self.kind)

    def loss(self, model, batch):
        if os.path.exists("here/config.toml"):  # before, the first batch is only looked at
            with open("seen", "a") as file:
                file.writelines(f"{int(total)}\n" for total in batch)
        return model(batch.float() * 1e-9).sum(), len(batch)
