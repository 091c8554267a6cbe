"""Whose the files of a run are, and what a file system may lack."""

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from spawnlaunch.train import files
from tests.support.late import Late

checkpoint = Late("spawnlaunch.train.checkpoint")

OTHER = 12345  # a user that is neither us nor root
root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link to another user")


@pytest.fixture
def everybody(tmp_path: Path) -> Path:
    """A directory that all may write to, as /tmp."""
    path = tmp_path / "everybody"
    path.mkdir()
    path.chmod(0o1777)
    return path


def test_directories_that_we_make_are_for_us_alone(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir(mode=0o755)
    files.make_directory(tmp_path / "there" / "new" / "run")
    modes = [stat.S_IMODE(path.stat().st_mode) for path in sorted(tmp_path.rglob("*"))]
    assert modes == [0o755, 0o700, 0o700]
    files.make_directory(tmp_path / "there")
    assert stat.S_IMODE((tmp_path / "there").stat().st_mode) == 0o755


@root
@pytest.mark.parametrize("is_last", [True, False])
def test_a_link_of_another_user_in_a_directory_for_all_is_not_followed(
    everybody: Path, tmp_path: Path, is_last: bool
) -> None:
    (tmp_path / "victim").mkdir()
    target = tmp_path / "victim" / ("file" if is_last else "")
    link = everybody / "link"
    link.symlink_to(target)
    os.lchown(link, OTHER, OTHER)
    path = link if is_last else link / "file"
    with pytest.raises(PermissionError, match="link is a link of another user, in a directory for"):
        files.write_text(path, "ours")
    with pytest.raises(PermissionError):
        files.make_directory(path)
    assert list((tmp_path / "victim").iterdir()) == []


@root
def test_links_of_ours_and_of_the_owner_of_the_directory_are_followed(
    everybody: Path, tmp_path: Path
) -> None:
    (everybody / "ours").symlink_to(tmp_path / "file")
    files.write_text(everybody / "ours", "one")
    (everybody / "owners").symlink_to(tmp_path / "file")
    os.lchown(everybody / "owners", OTHER, OTHER)
    os.chown(everybody, OTHER, OTHER)
    with files.open_text(everybody / "owners", "a") as file:
        file.write(" two")
    assert (tmp_path / "file").read_text() == "one two"


def test_links_in_a_circle_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        files.write_text(tmp_path / "a", "")


def test_to_make_room_is_advised_where_there_is_none() -> None:
    assert [files.advice(OSError(n, "")) for n in (errno.ENOSPC, errno.EDQUOT)] == 2 * ["make room"]
    assert files.advice(OSError(errno.EINVAL, "")) == "look at the file system"


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
        checkpoint.write(tmp_path, step, {"number": step}, {"order": {}}, check=True)
    checkpoint.prune(tmp_path, keep=1, best=2, newest=3)
    found, complaints = checkpoint.newest_whole(tmp_path)
    assert (found, complaints) == (tmp_path / "step-00000003", [])
    assert checkpoint.weights_of(tmp_path / "best") == {"number": 2}
    assert not list(tmp_path.glob("*.part"))
    assert {stat.S_IMODE(one.stat().st_mode) for one in tmp_path.glob("step-*")} == {0o700}
