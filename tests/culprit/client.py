"""A training script of several libraries, with a fault of some ranks; and a task of our own loop.

The environment has CLIENT, FAULT, RANKS and DELAY_S. The lines at which a fault happens end with
its name in a comment; so the one is found that is to be named.
"""

import os
import signal
import subprocess
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, Dataset

FAULT, DELAY_S = os.environ["FAULT"], float(os.environ["DELAY_S"])
IS_FAULTY = os.environ["RANK"] in os.environ["RANKS"].split(",")
FROM_STEP = 8  # on, of a fault that happens once
WIDTH, BATCH = 128, 16
LOCK = threading.Lock()
LEAKED: list[torch.Tensor] = []
steps = 0


def is_(fault: str) -> bool:
    return IS_FAULTY and fault == FAULT


def hold() -> None:
    """Another thread that has the lock again and again."""
    while True:
        with LOCK:
            time.sleep(DELAY_S)
        time.sleep(0.001)


if is_("lock"):
    threading.Thread(target=hold, daemon=True).start()


class Numbers(Dataset):
    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        if is_("data"):
            time.sleep(DELAY_S / BATCH)  # fault: data
        x = torch.full((WIDTH,), i % 17 / 17)
        return x, x.sum()


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        sizes = [WIDTH] * 4
        self.layers = torch.nn.ModuleList(torch.nn.Linear(n, n) for n in sizes)
        self.last = torch.nn.Linear(WIDTH, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if is_("compute"):
            until = time.thread_time() + DELAY_S
            while time.thread_time() < until:
                torch.mm(x.T, x)  # fault: compute
        for layer in self.layers:
            x = layer(x).relu()
        return self.last(x).squeeze(-1)


def loss_of(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Called once in each step, by all clients."""
    global steps
    steps += 1
    if is_("sleep"):
        time.sleep(DELAY_S)  # fault: sleep
    if is_("lock"):
        with LOCK:  # fault: lock
            pass
    if is_("leak"):
        LEAKED.append(torch.ones(1 << 20))  # fault: leak
    if is_("stop") and steps == FROM_STEP:
        os.kill(os.getpid(), signal.SIGSTOP)  # fault: stop
    if is_("hang") and steps == FROM_STEP:
        time.sleep(3600)  # fault: hang
    if FAULT == "mismatch" and steps == FROM_STEP:
        if IS_FAULTY:
            dist.all_reduce(torch.ones(8))  # fault: mismatch
        else:
            dist.broadcast(torch.ones(4), 0)
    return mse_loss(model(x), y)


class OwnTask:
    """Of the bundled loop."""

    def model(self) -> torch.nn.Module:
        return Model()

    def dataset(self, _: str) -> Numbers:
        return Numbers()

    def loss(
        self, model: torch.nn.Module, batch: list[torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = batch
        return loss_of(model, x, y) * len(y), torch.tensor(len(y))


class Wrapped(torch.nn.Module):
    """As transformers wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": loss_of(self.model, x, labels)}


def by_hand(wrap, workers: int = 0) -> None:
    dist.init_process_group("gloo")
    model = wrap(Model())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for x, y in DataLoader(Numbers(), BATCH, num_workers=workers):  # fault: loaders
        loss_of(model, x, y).backward()
        optimizer.step()
        optimizer.zero_grad()


def in_a_thread() -> None:
    train = threading.Thread(target=by_hand, args=(torch.nn.parallel.DistributedDataParallel,))
    train.start()
    train.join()


def beside_another() -> None:
    """With a process that has all variables of this rank, and torch, and does not train."""
    waits = "import sys, torch; sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", waits], stdin=subprocess.PIPE):
        by_hand(torch.nn.parallel.DistributedDataParallel)


def fsdp(model: torch.nn.Module) -> torch.nn.Module:
    from torch.distributed.fsdp import fully_shard

    for layer in model.layers:
        fully_shard(layer)
    return fully_shard(model)


def trainer() -> None:
    from transformers import Trainer, TrainingArguments

    class Named(Numbers):
        def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
            return dict(zip(("x", "labels"), super().__getitem__(i), strict=True))

    arguments = TrainingArguments(
        output_dir=os.environ["TMPDIR"], use_cpu=True, per_device_train_batch_size=BATCH,
        max_steps=1 << 20, save_strategy="no", report_to=[], disable_tqdm=True,
        logging_strategy="no",
    )  # fmt: skip
    Trainer(model=Wrapped(), args=arguments, train_dataset=Named()).train()


def of_lightning() -> None:
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = Model()

        def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
            return loss_of(self.model, *batch)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=1e-6)

    lightning.Trainer(
        accelerator="cpu", strategy="ddp", devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    ).fit(Module(), DataLoader(Numbers(), BATCH))  # fmt: skip


if __name__ == "__main__":
    torch.manual_seed(0)
    DDP = torch.nn.parallel.DistributedDataParallel
    CLIENTS = {
        "ddp": lambda: by_hand(DDP),
        "loaders": lambda: by_hand(DDP, workers=2),
        "compile": lambda: by_hand(lambda model: DDP(torch.compile(model, backend="eager"))),
        "thread": in_a_thread,
        "pair": beside_another,
        "fsdp": lambda: by_hand(fsdp),
        "trainer": trainer,
        "lightning": of_lightning,
    }
    CLIENTS[os.environ["CLIENT"]]()
