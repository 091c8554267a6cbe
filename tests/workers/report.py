"""Print one line of JSON: what this worker got from the launcher."""

import json
import os
import sys

sys.stdout.write(
    json.dumps(
        {
            "rank": int(os.environ["RANK"]),
            "environ": dict(os.environ),
            "argv": sys.argv,
            "cwd": os.getcwd(),
            "cpus": sorted(os.sched_getaffinity(0)),
            "write_through": sys.stdout.write_through,
            "session_leader": os.getsid(0) == os.getpid(),
            "pid": os.getpid(),
            "ppid": os.getppid(),
        }
    )
    + "\n"  # one write: print makes two, which other workers could part
)
