"""What torch has recorded, and that who is asked imports nothing for it."""

from pathlib import Path

import pytest

from spawnlaunch.witness import answering
from tests.support.witnessed import needs_line
from tests.witness.asking import answer_of, worker

pytestmark = [needs_line, pytest.mark.full]  # each loads torch

MEETS = """
import os, sys, torch
import torch.distributed as dist
print("early", flush=True)
before = set(sys.modules)
sys.stdin.readline()
print(sorted(set(sys.modules) - before), flush=True)
os.environ.update(SETS)
where = "file://" + os.path.abspath("store")
dist.init_process_group("gloo", init_method=where, rank=0, world_size=1)
for _ in range(10):
    dist.all_reduce(torch.ones(1))
before = set(sys.modules)
print("late", flush=True)
sys.stdin.readline()
print(sorted(set(sys.modules) - before), flush=True)
"""
TAKEN = "".join(
    f"import torch\nif hasattr(torch._C._distributed_c10d, {name!r}):\n"
    f"    del torch._C._distributed_c10d.{name}\n"
    for name in answering.DUMPS
)


@pytest.mark.parametrize(
    ("begin", "sets", "environ", "count"),
    [
        ("", {}, {}, 10),
        ("", {"TORCH_FR_BUFFER_SIZE": "3"}, {}, 3),  # set after it was asked already
        ("", {}, {"TORCH_FR_BUFFER_SIZE": "0"}, 0),
        ("", {}, {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, 10),
        (TAKEN, {}, {}, 0),  # as of a torch that records nothing
    ],
    ids=["as it is", "size", "off", "no loading", "no recorder"],
)
def test_what_is_recorded_is_told_and_nothing_is_imported(
    begin: str, sets: dict[str, str], environ: dict[str, str], count: int, tmp_path: Path
):
    script = f"{begin}SETS = {sets}\n{MEETS}"
    with worker(tmp_path, script, with_torch=True, **environ) as one:
        for word, calls in (("early", 0), ("late", count)):
            assert one.line() == word
            told = answer_of(one.pid, seconds=0.1)
            assert len(told.record.calls) == calls
            assert told.samples
            one.tell()
            assert one.line() == "[]"
        assert one.ends()[0] == 0
