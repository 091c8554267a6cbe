"""The picture of the report's page in watching.md, from a real launch on this machine.

python -m docs.report_example      on a quiet machine, with chromium(1): writes report.png
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PICTURE = Path(__file__).parent / "report.png"
SIZE = (900, 1110)  # pixels: the page's head, and the first curve
TRAIN = """\
import time, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, kept = dist.get_rank(), []
model = DistributedDataParallel(torch.nn.Linear(64, 64))


def load():
    time.sleep(0.03)
    if rank == 1:
        time.sleep(0.2)
    if rank == 2:
        kept.append(torch.ones(1 << 20))
    return torch.ones(64)


print("training", flush=True)
for step in range(360):
    loss = model(load()).sum()
    loss.backward()
if rank == 3:
    raise ValueError("the loss is not finite")
dist.barrier()
"""
LAUNCH = "--nproc 4 --oversubscribe --quiet --record record train.py"


def main() -> None:
    browser = shutil.which("chromium")
    if browser is None:
        sys.exit("it needs chromium; type apt-get install chromium")
    spawnlaunch = (sys.executable, "-m", "spawnlaunch")
    with tempfile.TemporaryDirectory() as place:
        Path(place, "train.py").write_text(TRAIN)
        subprocess.run([*spawnlaunch, *LAUNCH.split()], cwd=place, check=False)  # it fails
        page = Path(place, "page.html")
        subprocess.run([*spawnlaunch, "report", "record", "--html", page], cwd=place, check=True)
        # The interpreter's path is this machine's own.
        page.write_text(page.read_text().replace(sys.executable, "python"))
        subprocess.run(
            [
                browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                "--disable-background-networking", f"--screenshot={PICTURE}",
                f"--window-size={SIZE[0]},{SIZE[1]}", f"file://{page}",
            ],
            check=True, capture_output=True,
        )  # fmt: skip


if __name__ == "__main__":
    main()
