"""Says who it is; then waits or fails, always or the first time only."""

import json
import os
import sys
import time

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "NODE_RANK", "GROUP_WORLD_SIZE", "MASTER_ADDR")
told = {name: os.environ[name] for name in (*NAMES, "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT")}
told |= {name: "there" for name in os.environ if name.startswith("SPAWNLAUNCH_TOKEN")}
print(json.dumps(told), flush=True)
what, number = (*sys.argv[1:], "", "")[:2]
if what.endswith("-once") and told["TORCHELASTIC_RESTART_COUNT"] != "0":
    sys.exit()
if what.startswith("wait"):
    time.sleep(600)
elif what.startswith("fail"):
    time.sleep(1)  # the others have begun
    print("the worker's last words", file=sys.stderr)
    sys.exit(int(number))
