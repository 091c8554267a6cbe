"""A loop written by hand, on the model of the bundled loop: samples per second.

`hand.py LAYERS WIDTH CONTEXT BATCH STEPS`: bf16, fused AdamW, clipping; the last two
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


if __name__ == "__main__":
    layers, width, context, batch, steps = map(int, sys.argv[1:])
    task = Language(context=context, layers=layers, width=width)
    print(json.dumps({"samples_per_second": by_hand(task, batch, steps)}))
