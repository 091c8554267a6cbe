"""spawnlaunch.explain_launch: --explain=json as typed data."""

import os
import types
import typing
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from spawnlaunch import UsageError, explain_launch
from spawnlaunch.explained import ExplainedLaunch
from tests.support.launching import explain


def every(found: Iterable[list[str]]) -> list[str]:
    return list(chain.from_iterable(found))


def misfits(value: object, kind: Any, where: str = "") -> list[str]:
    """The places where a value is not of a type that `explained` names."""
    if kind is Any:
        return []
    if typing.is_typeddict(kind):
        hints = typing.get_type_hints(kind)
        if not isinstance(value, dict) or list(value) != list(hints):
            return [f"{where}: {value} has not the keys {list(hints)}"]
        return every(misfits(value[n], hints[n], f"{where}.{n}") for n in hints)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is list and isinstance(value, list):
        return every(misfits(each, inner[0], f"{where}[]") for each in value)
    if origin is dict and isinstance(value, dict):
        return every(misfits(value[n], inner[1], f"{where}.{n}") for n in value)
    if origin is types.UnionType and not all(misfits(value, each) for each in inner):
        return []
    return [] if type(value) is kind else [f"{where}: {value!r} is not {kind}"]


@pytest.mark.parametrize("is_here", [True, False])
def test_it_is_what_its_types_and_the_command_say_and_leaves_nothing(
    is_here: bool, trees: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    flags = {} if is_here else {"sysfs_root": str(trees["HGX_H100"])}
    found: Any = explain_launch(2, smt=False, **flags)
    assert os.listdir(tmp_path) == []
    assert misfits(found, ExplainedLaunch) == []
    assert found["world"]["world_size"] == 2
    words = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
    said = explain("--nproc", 2, "--smt=off", *words)
    assert found["node"] == said["node"]
    for name in ("rank", "cpus"):
        assert [w[name] for w in found["workers"]] == [w[name] for w in said["workers"]]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="did you mean threads"):
        explain_launch(2, thread=1)
    with pytest.raises(UsageError, match="9999"):
        explain_launch(2, bind="0:9999")
