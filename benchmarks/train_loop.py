"""Tokens per second of the training loop, of a hand-written one, and of the Hugging Face Trainer.

    python -m benchmarks.train_loop [ROUNDS [LAYERS WIDTH CONTEXT]]

Two ranks on two CPUs, the same model on the same text. In every round each of the three trains for
a few steps in the same processes, one after the other and in another order each time, so that what
else the machine does hits all of them. The clock of an arm starts when its first steps are over.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RANKS = 2
ROUNDS = 7
WARM_UP = 10  # steps that are not timed
STEPS = 50  # steps that are
SHAPE = (5, 128, 128)  # layers, width and context of the bundled model
BATCH = 8
LR = 1e-3


Shape = tuple[int, int, int]


def language(cls: Any, shape: Shape) -> Any:
    """The bundled task with a model of this shape."""
    layers, width, context = shape
    return cls(context=context, layers=layers, width=width)


class Forwards:
    """The moments at which a model began a training step."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def watch(self, model: Any) -> Any:
        model.register_forward_pre_hook(self._note)
        return model

    def _note(self, model: Any, _: Any) -> None:
        if model.training:
            self.at.append(time.perf_counter())

    def seconds(self) -> float:
        """What the timed steps took; the last WARM_UP + STEPS forward passes are looked at."""
        at = self.at[-STEPS:]
        return (at[-1] - at[0]) / (STEPS - 1) * STEPS


def ours(rank: int, scratch: Path, shape: Shape) -> float:
    """The loop of this repository, with all that it checks, sums and writes."""
    import torch

    from train.commandline import parse
    from train.distributed import World
    from train.loop import Place, train
    from train.metrics import Metrics
    from train.screen import Screen
    from train.tasks.language import Language
    from train.track import Trackers

    steps, seen = str(WARM_UP + STEPS), Forwards()

    class Watched(Language):
        def model(self) -> Any:
            return seen.watch(super().model())

    words = ["--steps", steps, "--lr", str(LR), "--device", "cpu", "--eval-every", "0"]
    config, _ = parse([*words, "--save-every", "0"])
    world = World(rank, RANKS, rank, RANKS)
    metrics = Metrics(scratch / "metrics.jsonl" if rank == 0 else None)
    trackers = Trackers(config, scratch, world)
    place = Place(world, torch.device("cpu"), scratch, Screen(None), metrics, trackers)
    if rank == 0:
        (scratch / "metrics.jsonl").touch()
    train(language(Watched, shape), config, place, {}, None, lambda: False)
    return seen.seconds()


def bare(rank: int, _: Path, shape: Shape) -> float:
    """What one writes by hand: no logs, no exact loss of the global batch, no checkpoint."""
    import torch
    import torch.nn.functional as F
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler

    from train.tasks.language import BYTES, Language

    torch.manual_seed(0)
    task, seen = language(Language, shape), Forwards()
    samples: Any = task.dataset("train")
    sampler: Any = DistributedSampler(samples, RANKS, rank)
    model = DistributedDataParallel(seen.watch(task.model()), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, fused=True)
    batches = iter(DataLoader(samples, BATCH, sampler=sampler))
    for _step in range(WARM_UP + STEPS):
        inputs, targets = next(batches)
        loss = F.cross_entropy(model(inputs).view(-1, BYTES), targets.view(-1), ignore_index=-1)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return seen.seconds()


def trainer(_rank: int, scratch: Path, shape: Shape) -> float:
    """The Trainer of Hugging Face transformers, with its logs and checkpoints turned off."""
    import torch
    import torch.nn.functional as F
    from transformers import Trainer, TrainingArguments

    from train.tasks.language import BYTES, Language

    task, seen = language(Language, shape), Forwards()

    class WithLoss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gpt = task.model()

        def forward(self, inputs: Any, targets: Any) -> dict[str, Any]:
            logits = self.gpt(inputs).view(-1, BYTES)
            return {"loss": F.cross_entropy(logits, targets.view(-1), ignore_index=-1)}

    def collate(pairs: Any) -> dict[str, Any]:
        inputs, targets = zip(*pairs, strict=True)
        return {"inputs": torch.stack(inputs), "targets": torch.stack(targets)}

    arguments = TrainingArguments(
        output_dir=str(scratch),
        max_steps=WARM_UP + STEPS,
        per_device_train_batch_size=BATCH,
        learning_rate=LR,
        optim="adamw_torch_fused",
        use_cpu=True,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    samples: Any = task.dataset("train")
    Trainer(seen.watch(WithLoss()), arguments, collate, train_dataset=samples).train()
    return seen.seconds()


ARMS: dict[str, Callable[[int, Path, Shape], float]] = {
    "ours": ours,
    "bare": bare,
    "trainer": trainer,
}


def work(rounds: int, shape: Shape) -> None:
    """One rank: every arm in every round; rank 0 prints the tokens per second of each."""
    import torch
    import torch.distributed as dist

    rank = int(os.environ["RANK"])
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpus[rank % len(cpus)]})
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    tokens = STEPS * BATCH * RANKS * shape[2]
    for number in range(rounds):
        names = list(ARMS)[number % len(ARMS) :] + list(ARMS)[: number % len(ARMS)]
        speeds: dict[str, Any] = {}
        for name in names:
            with tempfile.TemporaryDirectory() as scratch:
                dist.barrier()
                speeds[name] = tokens / ARMS[name](rank, Path(scratch), shape)
                if name == "ours" and rank == 0:
                    speeds["split"] = last_split(Path(scratch))
        if rank == 0:
            print(json.dumps(speeds), flush=True)
    dist.destroy_process_group()


def last_split(scratch: Path) -> dict[str, list[float]]:
    """Seconds of the parts of a step: minimum, median and maximum over the ranks."""
    lines = [json.loads(line) for line in (scratch / "metrics.jsonl").read_text().splitlines()]
    last = [line for line in lines if "data_s" in line][-1]
    return {name: last[name] for name in ("data_s", "compute_s", "wait_s")}


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    layers, width, context = map(int, sys.argv[2:5]) if len(sys.argv) > 4 else SHAPE
    shape = (layers, width, context)
    if "RANK" in os.environ:
        work(rounds, shape)
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    there = {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.train_loop", *map(str, (rounds, *shape))],
            env=os.environ
            | there
            | {"RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(RANKS)
    ]
    results = []
    assert ranks[0].stdout is not None
    for line in ranks[0].stdout:
        if line.startswith('{"'):
            results.append(json.loads(line))
            print("  ".join(f"{name} {results[-1][name]:,.0f} tokens/s" for name in ARMS))
    assert [rank.wait() for rank in ranks] == RANKS * [0]
    summarise(results)


def summarise(results: list[dict[str, Any]]) -> None:
    """Medians over the rounds; a ratio is the median of the rounds' ratios."""
    for name in ARMS:
        speed = statistics.median(one[name] for one in results)
        ratio = statistics.median(one["ours"] / one[name] for one in results)
        print(f"{name:8} {speed:10,.0f} tokens/s   ours is {ratio:.3f} of it")
    for name in ("data_s", "compute_s", "wait_s"):
        low, middle, high = (
            1e3 * statistics.median(one["split"][name][i] for one in results) for i in range(3)
        )
        print(f"{name[:-2]:8} {middle:8.2f} ms per step   {low:.2f} to {high:.2f} over the ranks")


if __name__ == "__main__":
    main()
