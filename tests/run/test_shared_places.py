"""Files of a launch in directories that other users may write to."""

import os
import re
import stat
import subprocess
import sys
from contextlib import suppress
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from spawnlaunch.base.errors import UsageError
from spawnlaunch.workers import files, starting
from tests.support.launching import ROOT, SLURM_TASK, clean_environ, launch, run
from tests.support.matrix import mostly_full

SOMEBODY = 1234
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")
WAYS = {
    "tee": ["--nproc", "2"],
    "redirected": ["--nproc", "2", "--redirects", "3"],
    "alone": ["--nproc", "1"],
    "task": ["--redirects", "3"],
}


def plant(link: Path, target: Path, uid: int = SOMEBODY) -> Path:
    link.symlink_to(target)
    os.lchown(link, uid, uid)
    return link


def whose(link: Path) -> str:
    return f"{link} is a link of another user's (uid {SOMEBODY}), where everybody may write"


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A directory as /tmp, with a link of somebody's to a directory of ours."""
    (tmp_path / "ours").mkdir()
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    plant(tmp_path / "shared" / "0", tmp_path / "ours")
    return tmp_path / "shared"


@pytest.mark.parametrize(
    ("mode", "owner", "uid", "is_followed"),
    [
        (0o1777, 0, SOMEBODY, False),
        (0o1777, 77, SOMEBODY, False),
        (0o777, 0, SOMEBODY, False),
        (0o755, 0, SOMEBODY, True),  # only its owner may write there
        (0o1777, 77, 77, True),
        (0o1777, 77, 0, True),
    ],
)
def test_a_link_is_followed_where_its_owner_may_be_trusted(mode, owner, uid, is_followed, shared):
    os.chown(shared, owner, owner)
    shared.chmod(mode)
    link = plant(shared / "link", shared.parent / "ours", uid)
    (shared.parent / "by-ours").symlink_to("shared/link")
    for name in (link, shared.parent / "by-ours"):
        if is_followed:
            files.check_links(f"{name}/x")
        else:
            with pytest.raises(OSError, match="is a link") as raised:
                files.check_links(f"{name}/x")
            assert raised.value.strerror == whose(link)


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
                files.check_links(str(link))
                status = 0
            os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_link_that_leads_over_somebody_elses_is_refused(shared: Path):
    (shared.parent / "up").symlink_to("ours/../shared")
    (shared.parent / "far").symlink_to(shared.parent / "up" / "." / "0")
    (shared.parent / "loop").symlink_to("loop")
    places = (str(shared.parent), os.path.relpath(shared.parent))
    for base, name in product(places, ("up/0", "ours/..//up/../shared/0", "far", "far/")):
        with pytest.raises(OSError, match="is a link of another user's"):
            files.check_links(f"{base}/{name}")
    for base, name in product(places, ("up", "ours", "no/such", "loop/x", "")):
        files.check_links(f"{base}/{name}")


def launch_into(logs: Path, way: str) -> subprocess.CompletedProcess[str]:
    """Workers that say something; the first writes its stdout to a file in `logs`."""
    environ = clean_environ(**SLURM_TASK) if way == "task" else clean_environ()
    words = ["--quiet", *WAYS[way], "--log-dir", f"{logs}/{{rank}}"]
    return launch(*words, "--no-python", "echo", "said", environ=environ)


def first(logs: Path, way: str) -> Path:
    """Where the files of the first worker are; somebody else has been there before us."""
    place = logs / (SLURM_TASK["SLURM_PROCID"] if way == "task" else "0")
    if not place.is_symlink():
        place.mkdir(parents=True)
        os.chown(place, SOMEBODY, SOMEBODY)
    return place


@pytest.mark.parametrize("way", mostly_full(WAYS, 2))
def test_a_log_file_is_not_written_through_somebody_elses_link_but_through_ours(way, tmp_path):
    ours = tmp_path / "ours"
    ours.write_text("precious")
    planted = plant(first(tmp_path / "logs", way) / "stdout.log", ours)
    done = launch_into(tmp_path / "logs", way)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"spawnlaunch: error: cannot write to {planted}: it is a link of another user's (uid "
        f"{SOMEBODY}); remove it, or name another directory with --log-dir\n"
    )
    assert ours.read_text() == "precious"
    os.lchown(planted, 0, 0)
    assert launch_into(tmp_path / "logs", way).returncode == 0
    assert ours.read_text() == "precioussaid\n"


def test_a_report_is_not_written_through_somebody_elses_link(shared: Path):
    assert launch("--quiet", "--record", shared, "--no-python", "true").returncode == 0
    planted = plant(shared / "report.html", shared.parent / "ours/page")
    done = run(sys.executable, "-m", "spawnlaunch.report", shared)
    assert (done.returncode, whose(planted) in done.stderr) == (2, True), done.stderr
    assert not (shared.parent / "ours/page").exists()


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


@pytest.mark.parametrize("by", mostly_full(["--result", "TORCHELASTIC_ERROR_FILE"]))
def test_a_link_that_is_put_there_meanwhile_is_refused_at_the_end(by: str, shared: Path):
    link, target = shared / "file", shared.parent / "ours" / "file"
    flags = [by, link] if by == "--result" else []
    environ = clean_environ(**({} if flags else {by: str(link)}))
    script = f"ln -s {target} {link} && chown -h {SOMEBODY} {link}; exit 7"
    done = launch("--quiet", *flags, "--no-python", "sh", "-c", script, environ=environ)
    assert done.returncode == 7
    assert f"cannot write {by} {link}: {whose(link)}; name another file\n" in done.stderr
    assert os.listdir(shared.parent / "ours") == []


def test_a_scratch_directory_is_new_and_only_ours_is_removed(tmp_path: Path):
    theirs, name = tmp_path / "theirs", tmp_path / "name"
    theirs.mkdir()
    (theirs / "file").touch()
    name.symlink_to(theirs)
    with pytest.raises(UsageError):
        files.make_scratch(str(name))
    os.lchown(name, SOMEBODY, SOMEBODY)  # no scratch directory for a restart
    with pytest.raises(UsageError):
        starting.prepare_files([], str(name), restart=1)
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
