"""Files of a launch in directories that other users may write to."""

import os
import re
import stat
from pathlib import Path

import pytest

from spawnlaunch.base.errors import UsageError
from spawnlaunch.workers import files
from tests.support.launching import ROOT, clean_environ, launch

SOMEBODY = 1234
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")


def test_what_workers_say_is_in_directories_that_nobody_else_enters(tmp_path: Path):
    words = ["--quiet", "--redirects", "3", "--record", tmp_path / "new/record"]
    environ = clean_environ(TMPDIR=str(tmp_path))
    assert launch(*words, "--no-python", "echo", environ=environ).returncode == 0
    found = [path for path in tmp_path.rglob("*") if path.is_dir()]
    assert len(found) > 5
    assert {stat.S_IMODE(path.stat().st_mode) for path in found} == {0o700}


def test_every_file_and_directory_is_made_in_one_place():
    """What writes into a directory that only this user has is no danger."""
    apart = {
        "workers/files.py",
        "workers/starting.py",
        "apart.py",
        "calling",
        "train",
        "witness",
    }
    making = re.compile(r"\.(write_text|write_bytes|mkdir|makedirs)\(|O_CREAT"
                        r"|[^.\w]open\([^)\n]*, \"[wax]")  # fmt: skip
    for file in (ROOT / "spawnlaunch").rglob("*.py"):
        name = str(file.relative_to(ROOT / "spawnlaunch"))
        if not {name, name.partition("/")[0]} & apart:
            lines = [line for line in file.read_text().splitlines() if making.search(line)]
            assert not [line for line in lines if "files.opened(" not in line], name


def test_a_scratch_directory_is_new_and_only_ours_is_removed(tmp_path: Path):
    theirs, name = tmp_path / "theirs", tmp_path / "name"
    theirs.mkdir()
    (theirs / "file").touch()
    name.symlink_to(theirs)
    with pytest.raises(UsageError):
        files.make_scratch(str(name))
    files.remove_scratch(str(name))
    os.chown(theirs, SOMEBODY, SOMEBODY)
    files.remove_scratch(str(theirs))
    assert (theirs / "file").exists()
    ours = Path(files.scratch_path({"TMPDIR": str(tmp_path)}))
    files.make_scratch(str(ours))
    assert ours.stat().st_mode & 0o777 == 0o700
    (ours / "a" / "b").mkdir(parents=True)
    (ours / "a" / "link").symlink_to(theirs)
    files.remove_scratch(str(ours))
    assert not ours.exists()
    assert (theirs / "file").exists()
