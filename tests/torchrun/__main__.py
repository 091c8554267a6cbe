"""Show what differs between torchrun and spawnlaunch for one line of torchrun.

python -m tests.torchrun "--nproc-per-node 2 train.py"    train.py is the probe

The status is 1 where something differs that docs/torchrun.md does not have. The variables of a
Slurm job are kept: in its shell the line is tried as it is typed there.
"""

import os
import sys
import tempfile
from pathlib import Path

from tests.torchrun import warm
from tests.torchrun.differences import findings, row_of, wrong
from tests.torchrun.lines import Line
from tests.torchrun.runner import run_both


def main(text: str) -> int:
    inherited = {name: os.environ[name] for name in os.environ if name.startswith("SLURM")}
    with tempfile.TemporaryDirectory() as top:
        both = run_both(Line(text), Path(top), inherited)
    warm.stop()
    for finding in findings(both):
        print(f"{finding.facet}: {row_of(finding, both) or 'NO ROW'}")
        print(f"  torchrun     {finding.theirs!r}\n  spawnlaunch  {finding.ours!r}")
    return 1 if wrong(both) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
