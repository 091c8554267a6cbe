"""The secret of a launch: where it is from, and what it cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from spawnlaunch.errors import UsageError
from spawnlaunch.gang.token import find

LEAST, MOST = 16, 4096  # bytes


def test_a_flag_goes_before_a_file_of_the_environment_and_that_before_a_text(
    tmp_path: Path,
) -> None:
    paths = [str(tmp_path / name) for name in "ab"]
    for path in paths:
        Path(path).write_text(f"{path[-1] * LEAST}\n")
    flag, a_file, text = paths[0], {"SPAWNLAUNCH_TOKEN_FILE": paths[1]}, "c" * LEAST
    a_text = {"SPAWNLAUNCH_TOKEN": f" {text}\n"}
    assert find(flag, {**a_file, **a_text}) == b"a" * LEAST
    assert find(flag, {}) == b"a" * LEAST
    assert find(None, {**a_file, **a_text}) == b"b" * LEAST
    assert find(None, a_text) == b"c" * LEAST
    assert find(None, {}) is None


@pytest.mark.parametrize("size", [0, LEAST - 1, LEAST, MOST, MOST + 1, 2 * MOST])
def test_it_has_a_size_in_a_file_and_in_the_environment(tmp_path: Path, size: int) -> None:
    path = tmp_path / "token"
    path.write_text("x" * size)
    for where in ({"SPAWNLAUNCH_TOKEN_FILE": str(path)}, {"SPAWNLAUNCH_TOKEN": "x" * size}):
        if LEAST <= size <= MOST:
            assert find(None, where) == b"x" * size
        elif size or "SPAWNLAUNCH_TOKEN_FILE" in where:
            with pytest.raises(UsageError, match=f"must have {LEAST} to {MOST}"):
                find(None, where)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--token-file .*/none: No such file"):
        find(str(tmp_path / "none"), {})
