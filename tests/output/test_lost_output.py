"""Output that cannot be written, or that nobody reads: said, and the rest is not lost with it."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.launching import LAUNCHER, WORKERS, clean_environ, run, start
from tests.support.matrix import mostly_full
from tests.support.patience import PATIENCE_S

CHATTER = WORKERS / "chatter.py"
SPEAK = ("--no-python", "sh", "-c", "echo said by $RANK; echo also by $RANK >&2")
FULL = "No space left on device"
NODE = ("--no-gang", "--nnodes", "2", "--node-rank", "1", "--master-addr", "localhost")
AS_USERS_DO = (*LAUNCHER[:-1], "--quiet")


def shell(redirected: str, *words: object) -> subprocess.CompletedProcess[str]:
    """A launch whose streams a shell redirects."""
    environ = clean_environ(GLOO_SOCKET_IFNAME="lo", NCCL_SOCKET_IFNAME="lo")
    return run("sh", "-c", f'"$@" {redirected}', "sh", *AS_USERS_DO, *words, environ=environ)


def by_workers(output: str) -> list[str]:
    return sorted(line for line in output.splitlines() if not line.startswith("spawnlaunch: "))


def by_us(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("spawnlaunch: ")]


@pytest.mark.parametrize(
    "flags", mostly_full([["--nproc", 2, "--log-dir", "{}/{{rank}}"], ["--nproc", 2], [*NODE]])
)
def test_a_full_disk_behind_stdout_is_said_and_costs_nothing_else(flags, tmp_path: Path):
    words = [str(word).format(tmp_path) for word in flags]
    done = shell(">/dev/full", *words, CHATTER, 2000, "both")
    nproc = 1 if flags == [*NODE] else 2
    assert done.returncode == os.EX_IOERR
    assert len(by_workers(done.stderr)) == 2000 * nproc
    first, last = by_us(done.stderr)
    where = f"to our stdout: {FULL}"
    assert first == f"spawnlaunch: cannot write {where}; what workers write there is lost"
    assert re.fullmatch(rf".* stdout: {FULL}; lost the last \d+ bytes that workers wrote", last)
    for rank in range(nproc) if "--log-dir" in flags else ():
        assert len((tmp_path / f"{rank}" / "stdout.log").read_text().splitlines()) == 2000


@pytest.mark.parametrize(
    ("redirected", "words", "status"),
    [
        ("2>/dev/full", SPEAK, os.EX_IOERR),
        ("2>/dev/full", ("--tee", 3, "--no-python", "true"), os.EX_IOERR),  # words of ours
        (
            "2>/dev/full",
            ("--tee", 3, "--redirects", 3, "--log-dir", "{}", "--no-python", "true"),
            0,
        ),
        (">/dev/full 2>&1", ("--no-python", "sh", "-c", "echo a; exit 3"), 3),
    ],
)
def test_what_is_lost_shows_in_the_status_unless_workers_fail(
    redirected: str, words: tuple[object, ...], status: int, tmp_path: Path
):
    done = shell(redirected, "--nproc", 2, *(str(word).format(tmp_path) for word in words))
    assert done.returncode == status
    assert by_workers(done.stdout) == (["[0] said by 0", "[1] said by 1"] if words == SPEAK else [])


@pytest.mark.parametrize("nproc", mostly_full([2, 1]))
def test_a_full_disk_ends_a_log_file_and_not_the_worker(nproc: int, tmp_path: Path):
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "stdout.log").symlink_to("/dev/full")
    done = shell("", "--nproc", nproc, "--prefix=never", "--log-dir", tmp_path / "{rank}", *SPEAK)
    assert done.returncode == os.EX_IOERR
    assert by_workers(done.stdout) == ["said by 0", "said by 1"][:nproc]
    assert f"cannot write to {tmp_path}/0/stdout.log: {FULL};" in done.stderr
    assert (tmp_path / "0" / "stderr.log").read_text() == "also by 0\n"


SOON = (
    "import sys\n"
    "from spawnlaunch.output import pipes\n"
    "pipes.UNREAD_S = 0.5\n"
    "from spawnlaunch.__main__ import launch\n"
    "sys.exit(launch())\n"
)


def test_workers_that_wait_for_a_reader_are_told_of(tmp_path: Path):
    with (tmp_path / "err").open("w+") as err:
        words = (
            sys.executable,
            "-c",
            SOON,
            "--quiet",
            "--nproc",
            "2",
            "--no-python",
            "sh",
            "-c",
            "yes | head -c 3000000",
        )
        launcher = start(*words, stderr=err, text=False)
        told = tmp_path / "err"
        while not told.read_text():
            time.sleep(0.1)
        assert "our stdout has not been read for 0.5 s; workers wait" in told.read_text()
        stdout, _ = launcher.communicate(timeout=PATIENCE_S)
    assert launcher.returncode == 0
    assert len(stdout) == 2 * 1500000 * 6
