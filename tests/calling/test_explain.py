"""spawnlaunch.explain_launch: what --explain=json prints."""

import os
from pathlib import Path
from typing import Any

import pytest

from spawnlaunch import UsageError, explain_launch
from tests.support.launching import explain


@pytest.mark.parametrize("is_here", [True, False])
def test_it_is_what_the_command_says_and_leaves_nothing(
    is_here: bool, trees: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    flags = {} if is_here else {"sysfs_root": str(trees["HGX_H100"])}
    found: Any = explain_launch(2, smt=False, **flags)
    assert os.listdir(tmp_path) == []
    assert found["world"]["world_size"] == 2
    words = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
    said = explain("--nproc", 2, "--smt=off", *words)
    assert found["node"] == said["node"]
    for name in ("rank", "cpus"):
        assert [w[name] for w in found["workers"]] == [w[name] for w in said["workers"]]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown flag --xyzzy"):
        explain_launch(2, xyzzy=1)
    with pytest.raises(UsageError, match="9999"):
        explain_launch(2, bind="0:9999")
