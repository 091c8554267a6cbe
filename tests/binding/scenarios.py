"""Situations on whole machines, where a folder of such trees lies beside this checkout.

The folder is not part of the project: what needs it is skipped where it is not there. A sample of
the machines is for every day, and the others are for `make full`.
"""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from spawnlaunch import cpuset
from spawnlaunch.node import Node
from tests.binding.rules import Expected, Group, Placed, violations

HERE = Path(__file__).resolve().parents[2]
FOLDER = HERE.parent / "shared" / "topologies"

# A vendor's CPUs and GPUs of its own, threads that not every core has, memory without CPUs.
SAMPLE = (
    "mpibind_eas-tioga",
    "pub_8-gpu-cloud-vm-with-124-vcpus-asymmetric-smt",
    "pub_alps-gh200-quad-node-cscs",
)

Scenario = dict[str, Any]


def require() -> None:
    """Skip the module that calls this where the folder is missing."""
    if not (FOLDER / "scenarios.json").exists():
        pytest.skip(f"no machines in ../{FOLDER.relative_to(HERE.parent)}", allow_module_level=True)


def load(machine: str | None = None) -> list[Scenario]:
    """The situations of a machine, or all."""
    every = json.loads((FOLDER / "scenarios.json").read_text())
    return [scenario for scenario in every if machine in (None, scenario["root"])]


def marks(machine: str) -> tuple[pytest.MarkDecorator, ...]:
    """Those of a test that is about this machine."""
    return () if machine in SAMPLE else (pytest.mark.full,)


def each_machine() -> pytest.MarkDecorator:
    """Makes a test one for each machine of the situations."""
    names = sorted({scenario["root"] for scenario in load()})
    return pytest.mark.parametrize(
        "machine", [pytest.param(name, marks=marks(name)) for name in names]
    )


def unpack(archive: Path, into: Path) -> Path:
    """Unpack a machine; the result is the directory with its sys and proc."""
    with tarfile.open(archive) as tar:
        tar.extractall(into, filter="tar")
    return next(path for path in into.iterdir() if path.is_dir())


class Trees(dict[str, Path]):
    """The directories of machines, by name; each is unpacked when it is asked for."""

    def __init__(self, into: Path) -> None:
        super().__init__()
        self._into = into

    def __missing__(self, name: str) -> Path:
        self[name] = unpack(FOLDER / "trees" / f"{name}.tar.xz", self._into / name)
        return self[name]


def broken_rules(scenario: Scenario, node: Node, placed: list[Placed], warned: bool) -> list[str]:
    """The rules that a plan for this situation breaks."""
    expected = [
        Expected(rank["device"], cpuset.parse(rank["local_allowed"])) for rank in scenario["ranks"]
    ]
    groups = [
        Group(group["ranks"], group["cores"], group["min_cores_per_rank"])
        for group in scenario["share_groups"]
    ]
    allowed = cpuset.parse(scenario["allowed"])
    return violations(placed, expected, groups, allowed, node.cores, warned)
