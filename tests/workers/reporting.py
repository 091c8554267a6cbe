"""How a worker of the tests reports: one line of JSON on stdout, or a file in REPORT_DIR.

srun tears lines of more than a kilobyte when several tasks write, hence the files.
"""

import json
import os
import sys
import uuid
from typing import Any


def report(**facts: Any) -> None:
    """Report the facts, and with them the rank, the host and the whole environment."""
    everything = {
        "rank": int(os.environ["RANK"]),
        "hostname": os.uname().nodename,
        "environ": dict(os.environ),
        **facts,
    }
    line = json.dumps(everything) + "\n"
    directory = os.environ.get("REPORT_DIR")
    if directory:
        with open(os.path.join(directory, f"{uuid.uuid4()}.json"), "w") as file:
            file.write(line)
    else:
        sys.stdout.write(line)  # one write: print makes two, which other workers could part
