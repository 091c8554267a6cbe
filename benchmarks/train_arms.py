"""The training loop, and the loops it is compared with: each trains in turns, by command.

    python -m benchmarks.train_arms ARM SCRATCH LAYERS WIDTH CONTEXT ROUNDS

Each does the same work: the same model, text and batches, fused AdamW with two groups of weights,
clipping, a learning rate that rises and falls, and a mean loss of all ranks every LOG_EVERY steps.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

RANKS = 2
TURN = 5  # steps
FIRST_TURNS = 5  # not counted
BATCH = 8
LOG_EVERY = 25  # steps
LR = 1e-3
WARM_UP = 5  # steps in which the learning rate rises
WEIGHT_DECAY = 0.1
SPLIT = "split-of-rank-"  # files of arm "ours", with a line for every LOG_EVERY steps, in seconds


class Turns:
    """Wait for a turn, and print the time of the last one.

    It is printed in seconds, and in seconds of CPU time, which other processes change less.
    """

    def __init__(self, count: int, log: Path) -> None:
        self.left = count
        self.asleep_s = 0.0  # between the first turn and the last
        # The output of an arm is part of its work, and goes to a file.
        self.out = os.fdopen(os.dup(1), "w")
        with log.open("w") as file:
            os.dup2(file.fileno(), 1)
        self._wait()

    def _wait(self) -> None:
        if not sys.stdin.readline():
            os._exit(1)
        self.began = time.perf_counter(), time.process_time()

    def next(self) -> None:
        """End a turn, and wait for the next one; does not return from the last."""
        seconds, busy = self.began
        told = time.perf_counter() - seconds, time.process_time() - busy
        print(*told, file=self.out, flush=True)
        self.left -= 1
        if not self.left:
            os._exit(0)  # the work after the last step is not compared
        ended = time.perf_counter()
        self._wait()
        self.asleep_s += self.began[0] - ended


class InTurns:
    """The samples of an arm, which pause after each turn's number of samples.

    So no arm has to know of turns: all of them read one batch for each step.
    """

    def __init__(self, samples: Any, turns: Turns) -> None:
        self.samples = samples
        self.turns = turns
        self.given = 0

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        if self.given == TURN * BATCH:
            self.turns.next()
            self.given = 0
        self.given += 1
        return self.samples[index]


class Work(NamedTuple):
    """The task, the samples and the most steps of an arm, and a directory for its files."""

    task: Any
    samples: InTurns
    steps: int
    scratch: Path


def ours(work: Work) -> None:
    """Train with the loop of this repository, with all that it checks, sums and writes."""
    import torch

    from spawnlaunch.train.commandline import parse
    from spawnlaunch.train.data import Readers
    from spawnlaunch.train.distributed import read_world
    from spawnlaunch.train.log import Clock, Metrics, Split
    from spawnlaunch.train.run import train
    from spawnlaunch.train.schedule import Deadline
    from spawnlaunch.train.screen import Screen
    from spawnlaunch.train.training import Place

    split_of = Clock.split

    def logged(clock: Clock) -> Split:
        """Write the parts of a step's time, without the time in which others had a turn."""
        turns, own = work.samples.turns, split_of(clock)
        awake = own._replace(data=own.data - turns.asleep_s / LOG_EVERY)
        turns.asleep_s = 0.0
        with (work.scratch / f"{SPLIT}{world.rank}").open("a") as file:
            file.write(json.dumps(awake._asdict()) + "\n")
        return own

    words = f"--steps {work.steps} --log-every {LOG_EVERY} --batch-size {BATCH} --lr {LR}"
    words += f" --warmup {WARM_UP} --weight-decay {WEIGHT_DECAY} --eval-every 0 --save-every 0"
    config, _ = parse([*words.split(), "--device", "cpu"])
    world = read_world(os.environ)
    lines = work.scratch / "metrics.jsonl"
    if world.rank == 0:
        lines.touch()
    metrics = Metrics(lines if world.rank == 0 else None)
    setattr(Clock, "split", logged)  # noqa: B010
    place = Place(world, torch.device("cpu"), work.scratch, Screen(None), metrics)
    theirs = work.task.dataset

    def in_turns(split: str) -> Any:
        return work.samples if split == "train" else theirs(split)

    object.__setattr__(work.task, "dataset", in_turns)  # its class is frozen
    train(Readers(work.task, config), config, place, {}, None, Deadline(None, {}, 0.0))


def bare(work: Work) -> None:
    """Train with a loop written by hand, after nanoGPT: no exact global loss, no checkpoint."""
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler

    torch.manual_seed(0)
    samples: Any = work.samples
    sampler: Any = DistributedSampler(samples)
    model = DistributedDataParallel(work.task.model(), gradient_as_bucket_view=True)
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": WEIGHT_DECAY},
        {"params": rest},
    ]
    optimizer = torch.optim.AdamW(groups, LR, betas=(0.9, 0.95), weight_decay=0, fused=True)
    rise = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=WARM_UP)
    batches = iter(DataLoader(samples, BATCH, sampler=sampler))
    losses = torch.zeros(())
    for step in range(work.steps):
        inputs, targets = next(batches)
        loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten(), ignore_index=-1)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        rise.step()
        losses += loss.detach()
        if (step + 1) % LOG_EVERY == 0:
            dist.all_reduce(losses)
            print(step, losses.item() / LOG_EVERY / RANKS)
            losses.zero_()


def trainer(work: Work, **settings: Any) -> None:
    """Train with the Trainer of Hugging Face transformers, without its checkpoints.

    By default it searches in every step for parameters that were not used.
    """
    import torch
    import torch.nn.functional as F
    from transformers import Trainer, TrainingArguments

    class WithLoss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gpt = work.task.model()

        def forward(self, inputs: Any, targets: Any) -> dict[str, Any]:
            logits = self.gpt(inputs).flatten(0, 1)
            return {"loss": F.cross_entropy(logits, targets.flatten(), ignore_index=-1)}

    def collate(pairs: Any) -> dict[str, Any]:
        inputs, targets = zip(*pairs, strict=True)
        return {"inputs": torch.stack(inputs), "targets": torch.stack(targets)}

    arguments = TrainingArguments(
        output_dir=str(work.scratch),
        max_steps=work.steps,
        per_device_train_batch_size=BATCH,
        learning_rate=LR,
        warmup_steps=WARM_UP,
        weight_decay=WEIGHT_DECAY,
        optim="adamw_torch_fused",
        use_cpu=True,
        save_strategy="no",
        logging_steps=LOG_EVERY,
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
        **settings,
    )
    samples: Any = work.samples
    Trainer(WithLoss(), arguments, collate, samples).train()


def quick_trainer(work: Work) -> None:
    """Train with the Trainer, without the work that this model does not need."""
    trainer(
        work,
        ddp_find_unused_parameters=False,
        ddp_broadcast_buffers=False,
        dataloader_pin_memory=False,
        logging_nan_inf_filter=False,
    )


ARMS: dict[str, Callable[[Work], None]] = {
    "ours": ours,
    "bare": bare,
    "trainer": trainer,
    "quick_trainer": quick_trainer,
}


def main() -> None:
    import torch
    import torch.distributed as dist

    from spawnlaunch.train.tasks.language import Language

    name, scratch, *numbers = sys.argv[1:]
    layers, width, context, rounds = map(int, numbers)
    rank = int(os.environ["RANK"])
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpus[rank % len(cpus)]})
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    task = Language(context=context, layers=layers, width=width)
    count = FIRST_TURNS + rounds
    turns = Turns(count, Path(scratch, f"printed-by-rank-{rank}"))
    steps = (count + 1) * TURN  # the last turn ends where the next one's first sample is read
    ARMS[name](Work(task, InTurns(task.dataset("train"), turns), steps, Path(scratch)))


if __name__ == "__main__":
    main()
