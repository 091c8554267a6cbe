"""What the training loop is compared with, and itself: each trains as it is told, turn by turn.

    python -m benchmarks.train_arms ARM SCRATCH LAYERS WIDTH CONTEXT ROUNDS

Each does the same work: the same model, text and batches, fused AdamW with two groups of weights,
clipping, a learning rate that rises and falls, and a mean loss of all ranks every TURN steps.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RANKS = 2
TURN = 25  # steps
BATCH = 8
LR = 1e-3
WARM_UP = 5  # steps in which the learning rate rises
WEIGHT_DECAY = 0.1


class Turns:
    """Wait for a turn, and tell what the last one took; call it after every TURN-th step.

    What is told is seconds, and seconds of the processor, which others' use of it changes less.
    """

    def __init__(self, rounds: int, log: Path) -> None:
        self.steps = (rounds + 1) * TURN
        self.left = rounds + 1
        # What the arms print is part of their work, and goes to a file.
        self.out = os.fdopen(os.dup(1), "w")
        with log.open("w") as file:
            os.dup2(file.fileno(), 1)
        self._wait()

    def _wait(self) -> None:
        if not sys.stdin.readline():
            os._exit(1)
        self.began = time.perf_counter(), time.process_time()

    def __call__(self) -> None:
        seconds, busy = self.began
        told = time.perf_counter() - seconds, time.process_time() - busy
        print(*told, file=self.out, flush=True)
        self.left -= 1
        if not self.left:
            os._exit(0)  # what comes after the last step is not compared
        self._wait()


def ours(turns: Turns, task: Any, scratch: Path) -> None:
    """The loop of this repository, with all that it checks, sums and writes."""
    import torch

    from train.commandline import parse
    from train.distributed import read_world
    from train.loop import Place, train
    from train.metrics import Metrics
    from train.screen import Screen
    from train.track import Trackers

    class Pacing(Trackers):
        """Hears of every line of metrics, between two steps."""

        def log(self, *_: Any) -> None:
            turns()

    words = f"--steps {turns.steps} --log-every {TURN} --batch-size {BATCH} --lr {LR} --device cpu"
    words += f" --warmup {WARM_UP} --weight-decay {WEIGHT_DECAY} --eval-every 0 --save-every 0"
    config, _ = parse(words.split())
    world = read_world(os.environ)
    lines = scratch / "metrics.jsonl"
    if world.rank == 0:
        lines.touch()
    metrics = Metrics(lines if world.rank == 0 else None)
    trackers = Pacing(config, scratch, world)
    place = Place(world, torch.device("cpu"), scratch, Screen(None), metrics, trackers)
    train(task, config, place, {}, None, lambda: False)


def bare(turns: Turns, task: Any, _: Path) -> None:
    """What one writes by hand, after nanoGPT: no exact loss of the global batch, no checkpoint."""
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler

    torch.manual_seed(0)
    samples: Any = task.dataset("train")
    sampler: Any = DistributedSampler(samples)
    model = DistributedDataParallel(task.model(), gradient_as_bucket_view=True)
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": rest}]
    optimizer = torch.optim.AdamW(groups, LR, betas=(0.9, 0.95), weight_decay=0, fused=True)
    rise = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=WARM_UP)
    batches = iter(DataLoader(samples, BATCH, sampler=sampler))
    losses = torch.zeros(())
    for step in range(turns.steps):
        inputs, targets = next(batches)
        loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten(), ignore_index=-1)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        rise.step()
        losses += loss.detach()
        if (step + 1) % TURN == 0:
            dist.all_reduce(losses)
            print(step, losses.item() / TURN / RANKS)
            losses.zero_()
            turns()


def trainer(turns: Turns, task: Any, scratch: Path) -> None:
    """The Trainer of Hugging Face transformers as it is by default, without its checkpoints."""
    import torch
    import torch.nn.functional as F
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class WithLoss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gpt = task.model()

        def forward(self, inputs: Any, targets: Any) -> dict[str, Any]:
            logits = self.gpt(inputs).flatten(0, 1)
            return {"loss": F.cross_entropy(logits, targets.flatten(), ignore_index=-1)}

    class Pacing(TrainerCallback):  # type: ignore[misc]
        def on_log(self, *_: Any, **__: Any) -> None:
            turns()

    def collate(pairs: Any) -> dict[str, Any]:
        inputs, targets = zip(*pairs, strict=True)
        return {"inputs": torch.stack(inputs), "targets": torch.stack(targets)}

    arguments = TrainingArguments(
        output_dir=str(scratch),
        max_steps=turns.steps,
        per_device_train_batch_size=BATCH,
        learning_rate=LR,
        warmup_steps=WARM_UP,
        weight_decay=WEIGHT_DECAY,
        optim="adamw_torch_fused",
        use_cpu=True,
        save_strategy="no",
        logging_steps=TURN,
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    samples: Any = task.dataset("train")
    trained = Trainer(WithLoss(), arguments, collate, samples, callbacks=[Pacing()])
    trained.train()


ARMS: dict[str, Callable[[Turns, Any, Path], None]] = {
    "ours": ours,
    "bare": bare,
    "trainer": trainer,
}


def main() -> None:
    import torch
    import torch.distributed as dist

    from train.tasks.language import Language

    name, scratch, *numbers = sys.argv[1:]
    layers, width, context, rounds = map(int, numbers)
    rank = int(os.environ["RANK"])
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpus[rank % len(cpus)]})
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    task = Language(context=context, layers=layers, width=width)
    turns = Turns(rounds, Path(scratch, f"printed-by-rank-{rank}"))
    ARMS[name](turns, task, Path(scratch))


if __name__ == "__main__":
    main()
