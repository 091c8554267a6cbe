"""A command whose number depends on its CPUs and on the round of the bench, and on nothing else.

The bench of two arms writes its samples to the file that is named, and so the file has the round.
"""

import json
import os
import sys
from pathlib import Path

if os.environ["RANK"] == "0":
    lines = Path(sys.argv[1]).read_text().splitlines()
    counted = [line for line in lines if '"sample"' in line and '"counts"' not in line]
    cpus = len(os.sched_getaffinity(0))
    print(json.dumps({"speed": 100.0 * cpus + len(counted) // 2 * 37 % 11}))
