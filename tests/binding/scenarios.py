"""Situations on whole machines, where a folder of such trees lies beside this checkout.

The folder is not part of the project: what needs it is skipped where it is not there.
"""

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spawnlaunch.node import Node, cpuset
from tests.binding.rules import Expected, Group, Placed, violations

HERE = Path(__file__).resolve().parents[2]
FOLDER = HERE.parent / "shared" / "topologies"

Scenario = dict[str, Any]


def require() -> None:
    """Skip the module that calls this where the folder is missing."""
    if not (FOLDER / "scenarios.json").exists():
        pytest.skip(f"no machines in ../{FOLDER.relative_to(HERE.parent)}", allow_module_level=True)


def load() -> list[Scenario]:
    """All situations."""
    return json.loads((FOLDER / "scenarios.json").read_text())


def unpack(archive: Path, into: Path) -> Path:
    """Unpack a machine; the result is the directory with its sys and proc."""
    with tarfile.open(archive) as tar:
        tar.extractall(into, filter="tar")
    return next(path for path in into.iterdir() if path.is_dir())


def trees(into: Path) -> Iterator[tuple[str, Path]]:
    """Every machine of the situations, by name."""
    for archive in sorted((FOLDER / "trees").glob("*.tar.xz")):
        name = archive.name.removesuffix(".tar.xz")
        yield name, unpack(archive, into / name)


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
