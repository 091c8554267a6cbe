"""What torch has recorded, and that a training does not notice that it is asked."""

import time
from pathlib import Path

import pytest

from spawnlaunch.witness import answering
from tests.support.patience import PATIENCE_S
from tests.support.watching import launched
from tests.support.witnessed import needs_line
from tests.witness.asking import answer_of, listens, worker

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
            assert told.looks
            one.tell()
            assert one.line() == "[]"
        assert one.ends()[0] == 0


LOADS = """
import os, sys, torch
class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 1
    def __getitem__(self, _):
        print(os.getpid(), flush=True)
        return 1
if __name__ == "__main__":
    kind = torch.utils.data.DataLoader
    one = kind(Numbers(), num_workers=1, multiprocessing_context="{how}", persistent_workers=True)
    numbers = [*one]
    sys.stdin.readline()
"""


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_a_loaders_worker_does_not_answer(how: str, tmp_path: Path):
    with worker(tmp_path, LOADS.format(how=how), with_torch=True) as one:
        loader = int(one.line())
        assert answer_of(one.pid).threads
        assert not listens(loader)
        assert one.ends()[0] == 0


TRAINS = """
import os, torch
import torch.distributed as dist
dist.init_process_group("gloo")
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(32, 32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
draw = torch.Generator().manual_seed(int(os.environ["RANK"]))
os.write(1, b"ready %d\\n" % os.getpid())
losses = []
for _ in range(300):
    loss = model(torch.randn(8, 32, generator=draw)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
with open(f"{__file__}.{os.environ['RANK']}", "w") as file:
    file.write(repr(losses))
dist.destroy_process_group()
"""


def trained(directory: Path, asks: bool) -> tuple[list[str], int]:
    """The losses of both ranks, and how many answers there were meanwhile."""
    script = directory / "script.py"
    script.write_text(TRAINS)
    count = 0
    with launched("--nproc", 2, script, directory=directory) as one:
        one.read_until(2)
        pids = [int(w.split()[1]) for w in one.output.splitlines() if w.startswith(b"ready")]
        until = time.monotonic() + PATIENCE_S
        while asks and one.launcher.poll() is None and time.monotonic() < until:
            for pid in pids:
                try:
                    count += bool(answer_of(pid).threads)
                except (AssertionError, OSError):  # it has ended
                    continue
            time.sleep(0.05)
        assert one.status() == 0, one.stderr
        return [(directory / f"script.py.{rank}").read_text() for rank in (0, 1)], count


def test_a_training_that_is_asked_has_the_same_losses(tmp_path: Path):
    (tmp_path / "asked").mkdir()
    (tmp_path / "alone").mkdir()
    losses, count = trained(tmp_path / "asked", asks=True)
    assert count
    assert losses == trained(tmp_path / "alone", asks=False)[0]
