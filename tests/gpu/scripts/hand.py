"""A loop written by hand, or the Trainer, on the model of the bundled loop: samples per second.

`hand.py hand|trainer LAYERS WIDTH CONTEXT BATCH STEPS`: bf16, fused AdamW, clipping; the last two
thirds of the steps are timed.
"""

import json
import sys
import time

import torch
import torch.nn.functional as F

from spawnlaunch.train.tasks.language import Language


def by_hand(task: Language, batch: int, steps: int) -> float:
    from torch.utils.data import DataLoader

    device = torch.device("cuda", 0)
    model = task.model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, betas=(0.9, 0.95), fused=True)
    loader = DataLoader(task.dataset("train"), batch, shuffle=True, drop_last=True, pin_memory=True)
    batches = iter(loader)
    began = 0.0
    for step in range(steps):
        if step == steps // 3:
            torch.cuda.synchronize()
            began = time.perf_counter()
        try:
            inputs, targets = next(batches)
        except StopIteration:
            batches = iter(loader)
            inputs, targets = next(batches)
        inputs = inputs.to(device, non_blocking=True)
        targets = targets.to(device, non_blocking=True)
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(inputs).flatten(0, 1)
            loss = F.cross_entropy(logits, targets.flatten(), ignore_index=-1)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    return batch * (steps - steps // 3) / (time.perf_counter() - began)


def by_trainer(task: Language, batch: int, steps: int) -> float:
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class WithLoss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gpt = task.model()

        def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> dict[str, torch.Tensor]:
            logits = self.gpt(inputs).flatten(0, 1)
            return {"loss": F.cross_entropy(logits, targets.flatten(), ignore_index=-1)}

    def collate(pairs: object) -> dict[str, torch.Tensor]:
        inputs, targets = zip(*pairs, strict=True)  # type: ignore[call-overload]
        return {"inputs": torch.stack(inputs), "targets": torch.stack(targets)}

    class Timer(TrainerCallback):  # type: ignore[misc]
        began = 0.0

        def on_step_end(self, _args: object, state: object, *_: object, **_more: object) -> None:
            if state.global_step == steps // 3:  # type: ignore[attr-defined]
                torch.cuda.synchronize()
                self.began = time.perf_counter()

    timer = Timer()
    arguments = TrainingArguments(
        output_dir="trainer",
        max_steps=steps,
        per_device_train_batch_size=batch,
        optim="adamw_torch_fused",
        bf16=True,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    Trainer(WithLoss(), arguments, collate, task.dataset("train"), callbacks=[timer]).train()
    torch.cuda.synchronize()
    return batch * (steps - steps // 3) / (time.perf_counter() - timer.began)


if __name__ == "__main__":
    how, *numbers = sys.argv[1:]
    layers, width, context, batch, steps = map(int, numbers)
    task = Language(context=context, layers=layers, width=width)
    rate = {"hand": by_hand, "trainer": by_trainer}[how](task, batch, steps)
    print(json.dumps({"samples_per_second": rate}))
