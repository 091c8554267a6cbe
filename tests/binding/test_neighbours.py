"""--explain in a task draws all tasks of its node, each of which plans the same."""

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
UNKNOWN = "the other local ranks of 4 are not drawn: which devices they see is not known here"


def explained(root: Path, rank: int, *flags: str, **more: str) -> str:
    shown = launch(
        *("--explain", "--sysfs-root", root, *flags, "--no-python", "true"),
        environ=clean_environ(**of_task(rank, 4, "localhost"), **more),
    )
    assert shown.returncode == 0, shown.stderr
    return shown.stdout


def drawn(text: str) -> str:
    """The letters of the cores, one after the other."""
    return "".join(re.findall(r"^    (?:l3|  ) \S+ +([-.*#\w ]+?)(?:  .*)?$", text, re.M))


@pytest.mark.parametrize(
    ("more", "sees", "cores"),
    [
        ({}, "0,1,2,3", "00112233"),
        (GPUS, "0,1,2,3", "00112233"),
        (GPUS, "alone", "00112233"),  # --gpus-per-task=1
        (BIND, "0,1,2,3", "00112233"),
    ],
)
def test_each_task_draws_the_same_cores_for_all(
    more: dict[str, str], sees: str, cores: str, tmp_path: Path
) -> None:
    root = build(tmp_path, FOUR)
    for rank in range(4):
        devices = str(rank) if sees == "alone" else sees
        mask = ("--allowed-cpus", f"{2 * rank}-{2 * rank + 1}") if more is BIND else ()
        text = explained(root, rank, *mask, CUDA_VISIBLE_DEVICES=devices, **more)
        assert drawn(text).replace(" ", "") == cores
        assert "not drawn" not in text


def test_tasks_get_the_cores_that_workers_of_a_launcher_get(tmp_path: Path) -> None:
    """So both can be seen before a job is submitted."""
    flags = ("--explain", "--sysfs-root", build(tmp_path, FOUR), "--nproc", 4)
    text = launch(*flags, "--no-python", "true", environ=clean_environ()).stdout
    assert drawn(text).replace(" ", "") == "00112233"


@pytest.mark.parametrize("sees", [("2,3", "2,3", "0,1", "0,1"), ("3", "2", "1", "0")])
def test_what_others_see_is_not_guessed(sees: tuple[str, ...], tmp_path: Path) -> None:
    root = build(tmp_path, FOUR)
    for rank, devices in enumerate(sees):
        text = explained(root, rank, CUDA_VISIBLE_DEVICES=devices, **GPUS)
        assert set(drawn(text)) & set("0123") == {str(rank)}
        assert UNKNOWN in text.splitlines()


def test_without_devices_all_are_drawn_too(tmp_path: Path) -> None:
    assert drawn(explained(build(tmp_path, NONE), 2)) == "0123"


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
