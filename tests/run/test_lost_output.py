"""Output that cannot be written, or that nobody reads: said, and the rest is not lost with it."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.launching import LAUNCHER, WORKERS, clean_environ, run, start
from tests.support.patience import PATIENCE_S

CHATTER = WORKERS / "chatter.py"
SPEAK = ("--no-python", "sh", "-c", "echo said by $RANK; echo also by $RANK >&2")
FULL = "No space left on device"
NODE = ("--no-gang", "--nnodes", "2", "--node-rank", "1", "--master-addr", "localhost")
AS_USERS_DO = (*LAUNCHER[:-1], "--quiet")


def shell(redirected: str, *words: object) -> subprocess.CompletedProcess[str]:
    """A launch whose streams a shell redirects."""
    return run(
        "sh",
        "-c",
        f'"$@" {redirected}',
        "sh",
        *AS_USERS_DO,
        *words,
        environ=clean_environ(GLOO_SOCKET_IFNAME="lo", NCCL_SOCKET_IFNAME="lo"),
    )


def by_workers(output: str) -> list[str]:
    return sorted(line for line in output.splitlines() if not line.startswith("spawnlaunch: "))


def by_us(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("spawnlaunch: ")]


@pytest.mark.parametrize("flags", [("--nproc", 2), ("--nproc", 2, "--no-prefix"), NODE], ids=str)
def test_a_full_disk_behind_stdout_is_said_and_costs_nothing_else(flags: tuple[object, ...]):
    done = shell(">/dev/full", *flags, CHATTER, 2000, "both")
    assert done.returncode == os.EX_IOERR
    assert len(by_workers(done.stderr)) == 2000 * (1 if flags == NODE else 2)
    first, last = by_us(done.stderr)
    assert (
        first
        == f"spawnlaunch: cannot write to our stdout: {FULL}; what workers write there is lost"
    )
    assert re.fullmatch(rf".* stdout: {FULL}; lost the last \d+ bytes that workers wrote", last)


def test_a_full_disk_behind_stderr_shows_in_the_status():
    done = shell("2>/dev/full", "--nproc", 2, *SPEAK)
    assert done.returncode == os.EX_IOERR
    assert by_workers(done.stdout) == ["[0] said by 0", "[1] said by 1"]


def test_words_of_the_launcher_that_are_lost_show_in_the_status(tmp_path: Path):
    flags = ["--tee", 3, "--redirects", 3, "--nproc", 2, "--log-dir", tmp_path]
    assert shell("2>/dev/full", *flags, "--no-python", "true").returncode == 0
    assert shell("2>/dev/full", "--nproc", 2, "--tee", 3, "--no-python", "true").returncode == 74


def test_a_workers_own_failure_stays_the_status_on_a_full_disk():
    done = shell(">/dev/full 2>&1", "--nproc", 2, "--no-python", "sh", "-c", "echo a; exit 3")
    assert done.returncode == 3


def test_log_files_are_whole_where_nothing_can_be_shown(tmp_path: Path):
    done = shell(">/dev/full", "--nproc", 2, "--log-dir", tmp_path / "{rank}", CHATTER, 3000, 1)
    assert done.returncode == os.EX_IOERR
    for rank in range(2):
        assert len((tmp_path / f"{rank}" / "stdout.log").read_text().splitlines()) == 3000


@pytest.mark.parametrize("nproc", [1, 2])
def test_a_full_disk_ends_a_log_file_and_not_the_worker(nproc: int, tmp_path: Path):
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "stdout.log").symlink_to("/dev/full")
    done = shell("", "--nproc", nproc, "--no-prefix", "--log-dir", tmp_path / "{rank}", *SPEAK)
    assert done.returncode == os.EX_IOERR
    assert by_workers(done.stdout) == ["said by 0", "said by 1"][:nproc]
    assert f"cannot write to {tmp_path}/0/stdout.log: {FULL};" in done.stderr
    assert (tmp_path / "0" / "stderr.log").read_text() == "also by 0\n"


def test_workers_have_files_beyond_the_soft_limit_on_descriptors_and_keep_it(tmp_path: Path):
    flags = ("--bind", "none", "--no-prefix", "--nproc", 12, "--log-dir", tmp_path)
    done = limited("-S -n 40", *flags, "--no-python", "sh", "-c", "ulimit -n")
    assert (done.returncode, by_workers(done.stdout)) == (0, ["40"] * 12)
    done = limited("-n 40", *flags, "--no-python", "sh", "-c", "ulimit -n")
    assert done.returncode == 2
    assert "12 workers need 92 open files" in done.stderr


def limited(limit: str, *words: object) -> subprocess.CompletedProcess[str]:
    """A launch under a limit of the shell's."""
    return run("sh", "-c", f'ulimit {limit}; exec "$@"', "sh", *AS_USERS_DO, *words)


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs a small disk")
@pytest.mark.parametrize("where", ["{disk}/out", "/dev/null"])
def test_a_disk_that_becomes_full_keeps_what_it_has(where: str, tmp_path: Path):
    disk = tmp_path / "disk"
    disk.mkdir()
    words = [*AS_USERS_DO, "--nproc", "2", "--log-dir", f"{disk}/logs"]
    worker = ["--no-python", "sh", "-c", "for i in $(seq 20000); do echo line $i; done"]
    launch = f'"$@" >{where.format(disk=disk)} 2>{tmp_path}/err; echo $?'
    small = f"mount -t tmpfs -o size=64k none {disk} && {{ {launch}; cat $(find {disk} -type f); }}"
    done = run("unshare", "-m", "sh", "-c", small, "sh", *words, *worker, check=True)
    status, *kept = done.stdout.splitlines()
    assert int(status) == os.EX_IOERR
    assert len(kept) > 1000
    told = "".join(by_us((tmp_path / "err").read_text()))
    assert f"stdout.log: {FULL};" in told
    assert (f"cannot write to our stdout: {FULL}" in told) == (where != "/dev/null")


def test_a_reader_that_has_stopped_does_not_cost_the_files_their_end(tmp_path: Path):
    ours, theirs = os.pipe()
    flags = ["--nproc", "2", "--grace", "0", "--log-dir", str(tmp_path / "{rank}")]
    # More than what may wait and the reader's pipe can hold, less than with the workers' pipes.
    worker = ["--no-python", "sh", "-c", f"yes {'x' * 99} | head -n 5600"]
    launcher = start(*AS_USERS_DO, *flags, *worker, stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    _, stderr = launcher.communicate(timeout=PATIENCE_S)
    os.close(ours)
    assert launcher.returncode == 0
    assert re.fullmatch(r"spawnlaunch: nobody read our stdout: dropped .*\n", stderr)
    for rank in range(2):
        assert (tmp_path / f"{rank}" / "stdout.log").stat().st_size == 560000


SOON = (
    "import sys\n"
    "from spawnlaunch.run import pipes\n"
    "pipes.UNREAD_S = 0.5\n"
    "from spawnlaunch.__main__ import main\n"
    "sys.exit(main())\n"
)


@pytest.mark.parametrize(
    ("command", "limit"),
    [
        ((sys.executable, "-c", SOON, "--quiet"), "0.5"),
        pytest.param(AS_USERS_DO, "30", marks=pytest.mark.full),
    ],
)
def test_workers_that_wait_for_a_reader_are_told_of(
    command: tuple[str, ...], limit: str, tmp_path: Path
):
    with (tmp_path / "err").open("w+") as err:
        words = (*command, "--nproc", "2", "--no-python", "sh", "-c", "yes | head -c 3000000")
        launcher = start(*words, stderr=err, text=False)
        told = tmp_path / "err"
        while not told.read_text():
            time.sleep(0.1)
        assert f"nobody has read our stdout for {limit} s; workers wait" in told.read_text()
        stdout, _ = launcher.communicate(timeout=PATIENCE_S)
    assert launcher.returncode == 0
    assert len(stdout) == 2 * 1500000 * 6


@pytest.mark.full
def test_what_a_reader_that_had_stopped_has_missed_is_named_when_it_reads_again(tmp_path: Path):
    """With log files the workers do not wait for it."""
    flags = ["--nproc", "2", "--log-dir", str(tmp_path / "{rank}")]
    script = (
        f"yes {'x' * 99} | head -n 20000; until test -e {tmp_path}/go; do sleep .1; done; echo on"
    )
    launcher = start(
        *AS_USERS_DO, *flags, "--no-python", "sh", "-c", script, stderr=subprocess.PIPE, text=False
    )
    assert launcher.stdout
    files = [tmp_path / f"{rank}" / "stdout.log" for rank in range(2)]
    while [path.exists() and path.stat().st_size for path in files] != [2000000] * 2:
        assert launcher.poll() is None
        time.sleep(0.05)
    read = b""
    while read.count(b"are not shown") < 2:
        read += os.read(launcher.stdout.fileno(), 1 << 16)
    (tmp_path / "go").touch()
    stdout, stderr = launcher.communicate(timeout=PATIENCE_S)
    assert (launcher.returncode, stderr) == (0, b"")
    read += stdout
    for rank, path in enumerate(files):
        here = [line[4:] for line in read.splitlines() if line.startswith(b"[%d] " % rank)]
        (note,) = (line for line in here if b"are not shown" in line)
        told = re.fullmatch(
            rf"spawnlaunch: (\d+) bytes are not shown; they are in {path}", note.decode()
        )
        assert told
        assert here[-1] == b"on"
        shown = sum(line.count(b"x") for line in here if line is not note)  # the path may have one
        assert 0 <= 2000000 - int(told[1]) - shown - shown // 99 <= 1


@pytest.mark.parametrize("grace", ["0", "0.001"])
def test_no_grace_cuts_the_output_of_a_run_that_ends_well(grace: str):
    words = [*AS_USERS_DO, "--nproc", "2", "--grace", grace, str(CHATTER), "9000", "1"]
    slowly = "import os, time\nwhile data := os.read(0, 4096): os.write(1, data); time.sleep(.002)"
    launcher = start(*words, text=False)
    read = subprocess.run(
        [LAUNCHER[0], "-c", slowly], stdin=launcher.stdout, capture_output=True, check=True
    )
    assert launcher.wait() == 0
    assert len(read.stdout.splitlines()) == 18000
