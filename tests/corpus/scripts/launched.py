"""What torch and a script are told of the launch by functions and variables.

Source: PyTorch's documentation, torchrun, "Environment Variables" (docs/source/elastic/run.rst)
"""

import os

import torch.distributed as dist

whose = ("", "LOCAL_", "GROUP_", "ROLE_")
names = [f"{prefix}{what}" for prefix in whose for what in ("RANK", "WORLD_SIZE")]
names += ["ROLE_NAME", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"]
told = {name: os.environ.get(name) for name in names}
dist.init_process_group("gloo")
print(f"{dist.is_torchelastic_launched()} {dist.get_node_local_rank()} {dist.get_rank()} {told}")
dist.destroy_process_group()
