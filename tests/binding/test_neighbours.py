"""--explain in a task draws the cores of the task, and those that it leaves to the others."""

import re
from pathlib import Path

import pytest

from tests.machines.small import small
from tests.machines.tree import Gpu, build
from tests.support.launching import clean_environ, launch
from tests.support.slurm_variables import of_task

FOUR = small(8, {0: "0-3", 1: "4-7"}, (*[Gpu(0, "0-3")] * 2, *[Gpu(1, "4-7")] * 2))
NONE = small(4)
GPUS = {"SLURM_STEP_GPUS": "0,1,2,3"}
BIND = {"SLURM_CPU_BIND_TYPE": "mask_cpu:", "SLURM_CPU_BIND_LIST": "0x3,0xc,0x30,0xc0"}


def explained(root: Path, rank: int, *flags: str, **more: str) -> str:
    shown = launch(
        *("--explain", "--sysfs-root", root, *flags, "--no-python", "true"),
        environ=clean_environ(**of_task(rank, 4, "localhost"), **more),
    )
    assert shown.returncode == 0, shown.stderr
    return shown.stdout


def drawn(text: str) -> str:
    """The letters of the cores, one after the other."""
    return "".join(re.findall(r"^    (?:l3|  ) \S+ +([-+.*#\w ]+?)(?:  .*)?$", text, re.M))


@pytest.mark.parametrize(
    ("more", "sees", "other"),
    [
        ({}, "0,1,2,3", "+"),
        (GPUS, "0,1,2,3", "+"),
        (GPUS, "alone", "+"),  # --gpus-per-task=1
        (BIND, "0,1,2,3", "-"),
    ],
)
def test_each_task_draws_its_cores_and_those_of_the_others(
    more: dict[str, str], sees: str, other: str, tmp_path: Path
) -> None:
    root = build(tmp_path, FOUR)
    for rank in range(4):
        devices = str(rank) if sees == "alone" else sees
        mask = ("--allowed-cpus", f"{2 * rank}-{2 * rank + 1}") if more is BIND else ()
        text = explained(root, rank, *mask, CUDA_VISIBLE_DEVICES=devices, **more)
        expected = "".join(str(i) * 2 if i == rank else other * 2 for i in range(4))
        assert drawn(text).replace(" ", "") == expected
        assert ("left to the other tasks" in text) == (other == "+")


def test_tasks_get_the_cores_that_workers_of_a_launcher_get(tmp_path: Path) -> None:
    """So both can be seen before a job is submitted."""
    flags = ("--explain", "--sysfs-root", build(tmp_path, FOUR), "--nproc", 4)
    text = launch(*flags, "--no-python", "true", environ=clean_environ()).stdout
    assert drawn(text).replace(" ", "") == "00112233"


def test_without_devices_they_are_drawn_too(tmp_path: Path) -> None:
    assert drawn(explained(build(tmp_path, NONE), 2)) == "++2+"


def test_variables_that_all_workers_have_are_shown_once(tmp_path: Path) -> None:
    root = build(tmp_path, NONE)
    flags = ("--explain", "--sysfs-root", root, "--nproc", 4, "--no-python", "true")
    text = launch(*flags, environ=clean_environ()).stdout
    common, *each = text.partition("\neach worker\n")[2].split("\nrank ")
    assert "    true\n" in common
    assert "    WORLD_SIZE=4\n" in common
    names = [re.findall(r"^    (\w+)=", one, re.M) for one in each]
    assert len(names) == 4
    assert names[0] == names[3]
    assert {"RANK", "LOCAL_RANK"} <= set(names[0])
    assert "WORLD_SIZE" not in names[0]


def test_a_candidate_that_says_the_same_is_no_alternative(tmp_path: Path) -> None:
    root = build(tmp_path, NONE)
    assert "not 4 from SLURM_NTASKS" not in explained(root, 0, SLURM_NTASKS="4")
    assert "not 5 from SLURM_NTASKS" in explained(root, 0, SLURM_NTASKS="5")
