"""What a file system may lack, or have no room for."""

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from spawnlaunch.train.errors import advice
from tests.support.late import Late

checkpoint = Late("spawnlaunch.train.checkpoint")


def test_to_make_room_is_advised_where_there_is_none() -> None:
    assert [advice(OSError(n, "")) for n in (errno.ENOSPC, errno.EDQUOT)] == 2 * ["make room"]
    assert advice(OSError(errno.EINVAL, "")) == "look at the file system"


def lacking(monkeypatch: pytest.MonkeyPatch, call: str, number: int) -> None:
    """Have a call of the system fail as a file system that lacks it does."""
    real: Any = getattr(os, call)

    def refuse(*arguments: Any, **named: Any) -> Any:
        if call == "symlink" or stat.S_ISDIR(os.fstat(arguments[0]).st_mode):
            raise OSError(number, os.strerror(number))
        return real(*arguments, **named)

    monkeypatch.setattr(os, call, refuse)


@pytest.mark.parametrize(
    ("call", "number"),
    [("fsync", errno.EINVAL), ("fsync", errno.EBADF), ("symlink", errno.EPERM)],
)
def test_a_checkpoint_is_kept_where_a_file_system_lacks_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    lacking(monkeypatch, call, number)
    for step in (1, 2, 3):
        checkpoint.write(tmp_path, step, {"number": step}, {}, check=True)
    checkpoint.prune(tmp_path, keep=1, best=2, newest=3)
    found, complaints = checkpoint.newest_whole(tmp_path)
    assert (found, complaints) == (tmp_path / "step-00000003", [])
    assert checkpoint.weights_of(str(tmp_path / "best")) == {"number": 2}
    assert not list(tmp_path.glob("*.part"))
