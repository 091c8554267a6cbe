"""Log files in directories that other users may write to."""

import os
import subprocess
from contextlib import suppress
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from spawnlaunch.errors import UsageError
from spawnlaunch.run import attempts, files, starting
from tests.support.launching import LAUNCHER, SLURM_TASK, clean_environ, launch, run

SOMEBODY = 1234
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")
WAYS = {
    "tee": ["--nproc", "2"],
    "redirected": ["--nproc", "2", "--redirects", "3"],
    "alone": ["--nproc", "1"],
    "task": ["--redirects", "3"],
}


def launch_into(logs: Path, way: str) -> subprocess.CompletedProcess[str]:
    """Workers that say something; the first writes its stdout to a file in `logs`."""
    environ = clean_environ(**SLURM_TASK) if way == "task" else clean_environ()
    words = [*LAUNCHER, "--quiet", *WAYS[way], "--log-dir", f"{logs}/{{rank}}"]
    return run(*words, "--no-python", "echo", "said", environ=environ)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A directory as /tmp, where somebody else has been before us."""
    for rank in ("0", SLURM_TASK["SLURM_PROCID"]):
        (tmp_path / "logs" / rank).mkdir(parents=True)
        os.chown(tmp_path / "logs" / rank, SOMEBODY, SOMEBODY)
    (tmp_path / "logs").chmod(0o1777)
    return tmp_path / "logs"


def first(logs: Path, way: str) -> Path:
    """Where the files of the first worker are."""
    return logs / (SLURM_TASK["SLURM_PROCID"] if way == "task" else "0")


@pytest.mark.parametrize("way", WAYS)
def test_a_link_of_somebody_elses_is_not_written_through(way: str, logs: Path):
    ours, planted = logs.parent / "ours", first(logs, way) / "stdout.log"
    ours.write_text("precious")
    planted.symlink_to(ours)
    os.lchown(planted, SOMEBODY, SOMEBODY)
    done = launch_into(logs, way)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"spawnlaunch: error: cannot write to {planted}: it is a link of another user's (uid "
        f"{SOMEBODY}); remove it, or name another directory with --log-dir\n"
    )
    assert ours.read_text() == "precious"


@pytest.mark.parametrize("way", WAYS)
def test_a_link_of_our_own_is_followed(way: str, logs: Path):
    ours = logs.parent / "ours"
    (first(logs, way) / "stdout.log").symlink_to(ours)
    assert launch_into(logs, way).returncode == 0
    assert ours.read_text() == "said\n"


@pytest.mark.parametrize("way", ["tee", "task"])
def test_a_FIFO_is_refused_and_not_waited_for(way: str, logs: Path):
    planted = first(logs, way) / "stderr.log"
    os.mkfifo(planted)
    reader = os.open(planted, os.O_RDONLY | os.O_NONBLOCK)
    for words in (" it is a FIFO, which keeps nothing; remove it", " No such device or address; "):
        done = launch_into(logs, way)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"cannot write to {planted}:{words}" in done.stderr
        if words.startswith(" it"):
            os.close(reader)


def test_what_cannot_be_removed_from_the_place_of_an_error_file_is_refused(logs: Path):
    (logs / "0" / "error.json").mkdir()
    done = launch_into(logs, "tee")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"cannot remove {logs}/0/error.json" in done.stderr


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A directory as /tmp, with a link of somebody's to a directory of ours."""
    (tmp_path / "ours").mkdir()
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    plant(tmp_path / "shared" / "0", tmp_path / "ours")
    return tmp_path / "shared"


def plant(link: Path, target: Path, uid: int = SOMEBODY) -> Path:
    link.symlink_to(target)
    os.lchown(link, uid, uid)
    return link


def whose(link: Path) -> str:
    return f"{link} is a link of another user's (uid {SOMEBODY}), where everybody may write"


def told(by: str, file: Path) -> tuple[list[str], dict[str, str]]:
    """Flags and environment of a launch that leaves a file there."""
    if by == "--result":
        return [by, str(file)], clean_environ()
    return [], clean_environ(**{by: str(file)})


def refused(done: subprocess.CompletedProcess[str], words: str) -> bool:
    return (done.returncode, done.stdout, done.stderr) == (2, "", f"spawnlaunch: error: {words}\n")


@pytest.mark.parametrize("mode", [0o1777, 0o777])
@pytest.mark.parametrize("way", ["tee", "alone", "task"])
def test_a_directory_behind_a_link_of_somebody_elses_is_refused(way: str, mode: int, shared: Path):
    shared.chmod(mode)
    link, rank = shared / "0", first(shared, way).name
    for log_dir in (link, shared.parent / "by-ours"):
        if log_dir != link:
            log_dir.symlink_to("shared/0")
        done = launch_into(log_dir, way)
        assert refused(
            done,
            f"cannot make the directory {log_dir}/{rank}: {whose(link)}; name another directory "
            "with --log-dir",
        ), done
    assert os.listdir(shared.parent / "ours") == []


def test_the_directory_of_a_rank_may_be_such_a_link_itself(shared: Path):
    done = launch_into(shared, "tee")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{shared}/0: {whose(shared / '0')}; name another" in done.stderr
    assert os.listdir(shared.parent / "ours") == []


@pytest.mark.parametrize("uid", [77, 0])
def test_a_link_of_the_directorys_owner_or_of_root_is_followed(uid: int, shared: Path):
    os.chown(shared, 77, 77)
    link = plant(shared / "trusted", shared.parent / "ours", uid)
    assert launch_into(link, "tee").returncode == 0
    assert (shared.parent / "ours" / "0" / "stdout.log").read_text() == "said\n"


def test_whoever_is_not_root_follows_roots_links_too():
    with TemporaryDirectory() as place:  # pytest's own only root may enter
        os.chmod(place, 0o777)
        os.chown(place, 77, 77)
        link = plant(Path(place, "link"), Path(place, "far"), 0)
        child = os.fork()
        if child == 0:
            status = 1
            with suppress(OSError):
                os.setresuid(SOMEBODY, SOMEBODY, SOMEBODY)
                status = files.resolved(str(link)) != f"{place}/far"
            os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_link_where_only_its_owner_may_write_is_followed(shared: Path):
    shared.chmod(0o755)
    assert launch_into(shared / "0", "tee").returncode == 0
    assert (shared.parent / "ours" / "0" / "stdout.log").read_text() == "said\n"


@pytest.mark.parametrize("by", ["--result", "TORCHELASTIC_ERROR_FILE"])
@pytest.mark.parametrize("name", ["file", "0/file"])
def test_no_file_is_left_behind_a_link_of_somebody_elses(by: str, name: str, shared: Path):
    plant(shared / "file", shared.parent / "ours" / "file")
    flags, environ = told(by, shared / name)
    shown = f"{by} {shared / name}" if flags else f"{by}={shared / name}"
    done = launch("--quiet", *flags, "--no-python", "false", environ=environ)
    link = shared / name.split("/", maxsplit=1)[0]
    assert refused(done, f"{shown}: {whose(link)}; name another"), done
    assert os.listdir(shared.parent / "ours") == []


@pytest.mark.parametrize("by", ["--result", "TORCHELASTIC_ERROR_FILE"])
def test_a_link_that_is_put_there_meanwhile_is_refused_at_the_end(by: str, shared: Path):
    link, target = shared / "file", shared.parent / "ours" / "file"
    flags, environ = told(by, link)
    script = f"ln -s {target} {link} && chown -h {SOMEBODY} {link}; exit 7"
    done = launch("--quiet", *flags, "--no-python", "sh", "-c", script, environ=environ)
    assert done.returncode == 7
    assert f"cannot write {by} {link}: {whose(link)}; name another file\n" in done.stderr
    assert os.listdir(shared.parent / "ours") == []


def test_a_task_does_not_follow_one_to_its_error_file(shared: Path):
    name = shared / "0" / "e.json"
    environ = clean_environ(**SLURM_TASK, TORCHELASTIC_ERROR_FILE=str(name))
    done = launch("--quiet", "--no-python", "true", environ=environ)
    assert refused(
        done,
        f"cannot make the directory {name.parent}: {whose(shared / '0')}; name another file in "
        "TORCHELASTIC_ERROR_FILE",
    ), done


def test_links_lead_where_the_kernel_takes_them(tmp_path: Path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "up").symlink_to("a/b/../..")
    (tmp_path / "a" / "far").symlink_to(tmp_path / "up" / "a")
    (tmp_path / "loop").symlink_to("loop")
    names = ("up/a/b", "a/far/far/b/..", "a/far/b/../../up", "no/such", "/", "/dev/null", ".")
    for base, name in product((str(tmp_path), os.path.relpath(tmp_path)), names):
        path = os.path.join(base, name)
        assert files.resolved(path) == os.path.realpath(path)
    with pytest.raises(OSError, match="Too many levels"):
        files.resolved(f"{tmp_path}/loop/x")


def test_a_scratch_directory_is_new_and_only_ours_is_removed(tmp_path: Path):
    theirs, name = tmp_path / "theirs", tmp_path / "name"
    theirs.mkdir()
    (theirs / "file").touch()
    name.symlink_to(theirs)
    with pytest.raises(UsageError):
        attempts.make_scratch(str(name))
    attempts.remove_scratch(str(name))
    os.chown(theirs, SOMEBODY, SOMEBODY)
    attempts.remove_scratch(str(theirs))
    assert (theirs / "file").exists()
    ours = Path(starting.scratch_path({"TMPDIR": str(tmp_path)}))
    attempts.make_scratch(str(ours))
    assert ours.stat().st_mode & 0o777 == 0o700
    (ours / "a" / "b").mkdir(parents=True)
    (ours / "a" / "link").symlink_to(theirs)
    attempts.remove_scratch(str(ours))
    assert not ours.exists()
    assert (theirs / "file").exists()
