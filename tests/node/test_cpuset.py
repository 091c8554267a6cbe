"""CPU lists and masks, as the kernel and srun write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spawnlaunch.base import cpuset

CPUS = st.frozensets(st.integers(0, 2000), max_size=300)


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("", []),
        ("\n", []),
        ("0", [0]),
        ("0-3,8\n", [0, 1, 2, 3, 8]),
        ("8, 0-1", [0, 1, 8]),
        ("3,1-3", [1, 2, 3]),
    ],
)
def test_a_list_is_read_as_the_kernel_reads_it(text: str, cpus: list[int]) -> None:
    assert cpuset.parse(text) == frozenset(cpus)


@pytest.mark.parametrize(
    "text", ["a", "3-1", "1-", "-1", "0x3", "1-3:2", "1-3:3/2", "1-3:0/2", "0-99999999999", "1_0"]
)
def test_what_is_no_list_is_refused_with_the_item_and_an_example(text: str) -> None:
    with pytest.raises(cpuset.CpuSetError, match="0-3,8"):
        cpuset.parse(f"5,{text}")


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0", ""),
        ("0xff00", "8-15"),
        ("FE\n", "1-7"),
        ("00000000,00ff0000,00000000,00ff0000", "16-23,80-87"),
        ("0000,00000000,000000ff,ff000000,00000000,00000000", "88-103"),
        ("1,0", "32"),
    ],
)
def test_a_mask_is_read_with_and_without_words(text: str, cpus: str) -> None:
    assert cpuset.format(cpuset.parse_mask(text)) == cpus


@pytest.mark.parametrize("text", ["", "0xg", "-1", "1,,g", "f_f"])
def test_what_is_no_mask_is_refused(text: str) -> None:
    with pytest.raises(cpuset.CpuSetError, match="is not a CPU mask"):
        cpuset.parse_mask(text)


@given(CPUS)
def test_lists_and_masks_survive_the_way_there_and_back(cpus: frozenset[int]) -> None:
    assert cpuset.parse(cpuset.format(cpus)) == cpus
    assert cpuset.parse_mask(cpuset.format_mask(cpus)) == cpus
