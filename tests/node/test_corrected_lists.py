"""A list of devices that is none as it stands: what is read of it, and what is to be typed."""

import pytest

from spawnlaunch.base import errors
from spawnlaunch.node.visible import corrected
from tests.machines.small import small
from tests.machines.tree import Gpu
from tests.support.explained import explain


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0-1", "0,1"), ("0 1", "0,1"), ("0;1", "0,1"), ("1:0", "1,0"), ("all", "0,1,2,3"),
        ("[0, 1]", "0,1"), ("'0,1'", "0,1"), ('"2"', "2"), ("cuda:0,cuda:3", "0,3"),
        ("gpu2", "2"), ("1..3", "1,2,3"), ("0-1,3", "0,1,3"), ("0 - 1", "0,1"),
        ("NoDevFiles", ""), ("none", ""), ("", ""), ("0-7", ""), ("1-0", ""), ("0,0", ""),
    ],
)  # fmt: skip
def test_the_list_that_was_meant(value: str, expected: str):
    assert corrected(value, 4) == expected


MACHINE = small(8, gpus=(Gpu(0, "0-7"),) * 4)


@pytest.mark.parametrize("value", ["0-1", "0 1", "[0,1]", "cuda:0,cuda:1", "all"])
@pytest.mark.parametrize("nproc", ["gpu", "auto", "2"])
def test_the_first_remedy_is_the_list_and_it_works(value: str, nproc: str):
    listed = corrected(value, 4)
    try:
        said = explain(MACHINE, f"--nproc {nproc}", {"CUDA_VISIBLE_DEVICES": value})["warnings"]
    except errors.UsageError as error:
        said = [str(error)]
    (line,) = [line for line in said if "CUDA_VISIBLE_DEVICES" in line and "export " in line]
    remedy = line.partition("; export ")[2]
    assert "export " + remedy.partition(", or ")[0] == f"export CUDA_VISIBLE_DEVICES={listed}"
    told = explain(MACHINE, f"--nproc {nproc}", {"CUDA_VISIBLE_DEVICES": listed})
    assert not any("CUDA_VISIBLE" in line for line in told["warnings"])
