"""Files that the launcher leaves at places of the user's: --result and TORCHELASTIC_ERROR_FILE."""

import json
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spawnlaunch.workers import files
from tests.support.launching import LAUNCHER, WORKERS, clean_environ, launch, run
from tests.support.matrix import mostly_full
from tests.support.patience import PATIENCE_S

FULL, NULL = os.makedev(1, 7), os.makedev(1, 3)  # null(4), full(4)
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs to make a device")


def is_whole(text: str) -> bool:
    return bool({"ranks", "message"} & json.loads(text).keys())


def filed(path: Path, *, by: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """A launch that fails and leaves a file there, "--result" or the error file."""
    flags = ["--result", str(path)] if by == "--result" else []
    environ = clean_environ(**({} if flags else {by: str(path)}))
    fails = (*flags, WORKERS / "fail.py", "0", "exit", "7")
    return launch("--quiet", "--nproc", "1", *fails, environ=environ, **options)


ways = pytest.mark.parametrize("by", mostly_full(["--result", "TORCHELASTIC_ERROR_FILE"]))


@ways
def test_a_link_stays_and_the_file_keeps_its_mode_and_owner(by: str, tmp_path: Path):
    target, link = tmp_path / "far" / "file", tmp_path / "link"
    target.parent.mkdir()
    target.write_text("old")
    target.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(target, 1234, 1234)
    before = target.stat()
    link.symlink_to("far/file")
    assert filed(link, by=by).returncode == 7
    assert link.is_symlink()
    after = target.stat()
    assert is_whole(target.read_text())
    for name in ("st_mode", "st_uid", "st_gid"):
        assert getattr(after, name) == getattr(before, name)
    assert os.listdir(target.parent) == ["file"]


def test_a_new_file_has_the_mode_that_umask_leaves(tmp_path: Path):
    link = tmp_path / "dangling"
    link.symlink_to("new")
    assert filed(link, by="--result", umask=0o027).returncode == 7
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    assert sorted(os.listdir(tmp_path)) == ["dangling", "new"]


@ways
@AS_ROOT
@pytest.mark.parametrize(
    ("device", "words"), mostly_full([(FULL, "No space left on device"), (NULL, "")])
)
def test_a_device_is_written_to(by: str, device: int, words: str, tmp_path: Path):
    path = tmp_path / "device"
    os.mknod(path, stat.S_IFCHR | 0o666, device)
    done = filed(path, by=by)
    assert done.returncode == 7
    assert stat.S_ISCHR(path.stat().st_mode)
    assert (f"cannot write {by} {path}: {words}" in done.stderr) == bool(words)
    assert os.listdir(tmp_path) == ["device"]


NODE_1 = ("--no-gang", "--nnodes=2", "--node-rank=1", "--master-addr=localhost", "--nproc=1")


@pytest.mark.parametrize("flags", [("--nproc", 1), NODE_1], ids=["alone", "one of several nodes"])
def test_a_FIFO_keeps_its_name_and_is_written_to_its_reader(flags, tmp_path: Path):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    reader = subprocess.Popen(["cat", path], stdout=subprocess.PIPE, text=True)
    assert launch(*flags, "--result", path, "--no-python", "true").returncode == 0
    assert is_whole(reader.communicate(timeout=PATIENCE_S)[0])
    assert path.is_fifo()
    assert os.listdir(tmp_path) == ["fifo"]


def test_a_FIFO_that_nobody_reads_does_not_hold_the_launcher(tmp_path: Path):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    done = launch("--nproc", 1, "--result", path, "--no-python", "true")
    assert done.returncode == os.EX_IOERR
    assert f"cannot write --result {path}: No such device or address" in done.stderr


def test_the_file_that_stdout_goes_to_is_added_to(tmp_path: Path):
    path = tmp_path / "out"
    for name in (path, Path("/dev/stdout")):
        with path.open("w") as file:
            words = ["--result", name, "--quiet", "--nproc", "2", "--no-python", "echo", "said"]
            subprocess.run([*LAUNCHER, *words], env=clean_environ(), stdout=file, check=True)
        text = path.read_text()
        assert text.startswith("said\nsaid\n")
        assert is_whole(text.removeprefix("said\nsaid\n"))


@pytest.mark.full
@ways
def test_what_cannot_be_written_leaves_nothing_and_the_old_file_as_it_was(by: str, tmp_path: Path):
    disk = tmp_path / "disk"
    disk.mkdir()
    flags = ["--result", f"{disk}/file"] if by == "--result" else []
    extra = {} if flags else {"TORCHELASTIC_ERROR_FILE": f"{disk}/file"}
    fill = f"mount -t tmpfs -o size=8k none {disk} && echo old >{disk}/file && yes >{disk}/big"
    words = (*LAUNCHER, "--quiet", *flags, WORKERS / "fail.py", "0", "exit", "7")
    then = f'"$@"; echo $?; ls -A {disk}; cat {disk}/file'
    command = ("unshare", "-m", "sh", "-c", f"{fill}; {then}", "sh", *words)
    done = run(*command, environ=clean_environ(**extra))
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip("cannot make a small disk here")
    assert done.stdout.split() == ["7", "big", "file", "old"]
    assert f"cannot write {by} {disk}/file: No space left" in done.stderr


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (Path.mkdir, "is a directory; name a file"),
    ],
)
def test_a_place_that_cannot_be_is_refused_before_anything_starts(
    make: Callable[[Path], None], words: str, tmp_path: Path
):
    path = tmp_path / "place"
    make(path)
    done = launch("--nproc", 1, "--result", path, "--no-python", "echo", "started")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"--result {path}: {words}" in done.stderr


def test_a_file_without_a_name_is_written_to_through_its_descriptor(tmp_path: Path):
    """No other file takes its place, of a name that only /proc shows for it."""
    path = tmp_path / "deleted"
    with path.open("w+") as file:
        path.unlink()
        files.write(f"/dev/fd/{file.fileno()}", "words")
        file.seek(0)
        assert file.read() == "words"
    assert list(tmp_path.iterdir()) == []
