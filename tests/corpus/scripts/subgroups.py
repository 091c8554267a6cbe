"""Four ranks in groups: of data, of a model and for embeddings, as a large model has them.

Source: NVIDIA/Megatron-LM, megatron/core/parallel_state.py, initialize_model_parallel
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
groups = {}
for name, members in (
    ("tensor", [[0, 1], [2, 3]]),
    ("data", [[0, 2], [1, 3]]),
    ("embedding", [[0, 3]]),
):
    for ranks in members:
        group = dist.new_group(ranks)  # which all ranks must call
        if rank in ranks:
            groups[name] = group
for name, group in groups.items():
    value = torch.tensor([10.0**rank])
    dist.all_reduce(value, group=group)
    print(f"rank {rank} {name} {dist.get_process_group_ranks(group)} {value.item():.0f}")
mine, all_of_them = dist.new_subgroups(group_size=2)
value = torch.tensor([float(rank)])
dist.broadcast(value, src=2 * (rank // 2), group=mine)
print(f"rank {rank} of {len(all_of_them)} subgroups has {value.item():.0f}")
dist.destroy_process_group()
