"""Use `python -m spawnlaunch.distributed_launch` instead of `python -m torch.distributed.launch`.

It is `python -m spawnlaunch`, but the script gets its local rank as an argument, --local-rank=N,
unless --use-env says that it reads LOCAL_RANK. `--local-rank-arg underscore` makes
it --local_rank=N, which scripts of the time of torch 1 expect.
"""

import sys

from spawnlaunch.__main__ import main

if __name__ == "__main__":
    sys.exit(main("--local-rank-arg=hyphen"))
