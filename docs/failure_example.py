"""The README's two blocks: the end of the same failed launch under torchrun and under spawnlaunch.

python -m docs.failure_example      writes the blocks into README.md
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.launching import clean_environ

README = Path(__file__).parents[1] / "README.md"
LAUNCHERS = {
    "torchrun": ("-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py"),
    "spawnlaunch": ("-m", "spawnlaunch", "--nproc", "2", "--quiet", "train.py"),
}
TYPED = {
    "torchrun": "torchrun --nproc-per-node 2 train.py",
    "spawnlaunch": "spawnlaunch --nproc 2 --quiet train.py",
}
LINES = 22  # of the end that is shown
TRAIN = """\
import os
import time

def check(label):
    if label >= 10:
        raise ValueError(f"sample 4711: label {label} is not below 10")

if os.environ["RANK"] == "1":
    check(12)
time.sleep(600)
"""


def end_of(launcher: str) -> str:
    """The last lines of a launch of two workers, of which the second fails."""
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "train.py").write_text(TRAIN)
        words = (sys.executable, *LAUNCHERS[launcher])
        done = subprocess.run(
            words, cwd=place, env=clean_environ(), capture_output=True, text=True, check=False
        )
    output = (done.stdout + done.stderr).replace(f"{place}/", "").replace(sys.executable, "python")
    output = re.sub(r'File ".*/site-packages/', 'File "', output)
    lines = [line.rstrip() for line in output.splitlines()]
    cut = ["..."] if len(lines) > LINES else []
    return "\n".join([*cut, *lines[-LINES:]])


def with_ends(text: str) -> str:
    """The README's text with both blocks as they come out now."""
    for launcher, typed in TYPED.items():
        mark = f"<!-- end of {launcher}, by python -m docs.failure_example -->\n"
        before, line, rest = text.partition(mark)
        assert line, f"README.md has no line {mark!r}"
        after = rest.split("```\n", 1)[-1]
        shown = f"```text\n$ {typed}\n{end_of(launcher)}\n```\n"
        text = f"{before}{mark}{shown}{after}"
    return text


if __name__ == "__main__":
    README.write_text(with_ends(README.read_text(encoding="utf-8")), encoding="utf-8")
