"""The DDP block of a small GPT's training: a master process, seeds by rank, steps without a sync.

Source: karpathy/nanoGPT, train.py
"""

import os
from contextlib import nullcontext

import torch
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP

accumulation = 4
ddp = int(os.environ.get("RANK", -1)) != -1
if ddp:
    init_process_group(backend="gloo")
    ddp_rank, ddp_local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    master_process, seed_offset = ddp_rank == 0, ddp_rank
    assert accumulation % int(os.environ["WORLD_SIZE"]) == 0
    accumulation //= int(os.environ["WORLD_SIZE"])
else:
    master_process, seed_offset, ddp_local_rank = True, 0, 0
torch.manual_seed(1337 + seed_offset)
text = torch.tensor(list(b"who am I, where do I sit, go. " * 20))
embed, width = torch.nn.Embedding(128, 32), 16
layer = torch.nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
model = torch.nn.Sequential(embed, layer, torch.nn.Linear(32, 128))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
raw_model = model
if ddp:
    model = DDP(model)
for step in range(10):
    for micro_step in range(accumulation):
        last = micro_step == accumulation - 1
        with nullcontext() if last or not ddp else model.no_sync():
            starts = torch.randint(len(text) - width, (8,))
            x = torch.stack([text[i : i + width] for i in starts])
            y = torch.stack([text[i + 1 : i + 1 + width] for i in starts])
            loss = torch.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
            (loss / accumulation).backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if master_process:
        print(f"iter {step}: loss {loss.item():.4f}, norm {norm.item():.4f}")
if master_process:
    os.makedirs("out", exist_ok=True)
    torch.save(raw_model.state_dict(), "out/ckpt.pt")
print(f"final {ddp_rank} {ddp_local_rank} {embed.weight.sum().item():.5f}")
if ddp:
    del model
    destroy_process_group()
