"""How a site's Slurm ends steps: its slurm.conf, and the srun on this node that waits for ours."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spawnlaunch.world.managers.slurm import site

KILLS = "SLURM_KILL_BAD_EXIT"
LISTENS = """import socket, sys
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
sys.stdin.read()
"""
Starter = Callable[..., str]


@pytest.fixture
def srun(tmp_path: Path) -> Iterator[Starter]:
    """Starts a program of that name with these words; the result is the port that it listens on."""
    program, started = tmp_path / "srun", []
    program.symlink_to(Path(sys.executable).resolve())

    def start(*words: str, **environ: str) -> str:
        command = [program, "-SEc", LISTENS, *words]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(command, env=environ, **pipes))
        return started[-1].stdout.readline().strip()

    yield start
    for process in started:
        process.communicate()


@pytest.mark.parametrize(
    ("words", "environ", "kills"),
    [
        ("", {}, False),
        ("-K", {}, True),
        ("-K1", {}, True),
        ("-K0", {}, False),
        ("-n2 --kill-on-bad-exit", {}, True),
        ("-n2 --kill-on-bad-exit=1", {}, True),
        ("-n2 --kill-on-bad-exit=0", {}, False),
        ("-n2 bin/spawnlaunch -K", {}, False),
        ("-n2 python -m -K", {}, True),
        ("", {KILLS: "1"}, True),
        ("", {KILLS: "0"}, False),
        ("-K0", {KILLS: "1"}, False),
    ],
)
@pytest.mark.parametrize("variable", site.PORTS)
def test_its_flags_and_its_variable_are_seen(
    srun: Starter, words: str, environ: dict[str, str], kills: bool, variable: str
) -> None:
    told = {variable: srun(*words.split(), **environ), "SLURM_CONF": "/nowhere"}
    assert site.kills_on_bad_exit(told, KILLS) == kills


def test_another_srun_says_nothing_of_this_step(srun: Starter) -> None:
    srun("-K")
    with socket.create_server(("127.0.0.1", 0)) as ours:
        told = {site.PORTS[0]: str(ours.getsockname()[1]), "SLURM_CONF": "/nowhere"}
        assert not site.kills_on_bad_exit(told, KILLS)
        told[site.PORTS[0]] = srun("-K0")
        assert not site.kills_on_bad_exit(told, KILLS)


@pytest.mark.parametrize(
    ("environ", "kills"),
    [({KILLS: "1"}, True), ({KILLS: "0"}, False), ({KILLS: ""}, False), ({}, False)],
)
def test_what_the_step_has_been_told_counts_first(
    srun: Starter, environ: dict[str, str], kills: bool
) -> None:
    port = srun("-K" if environ else "-K0", **{KILLS: "1"})
    told = {site.PORTS[0]: port, "SLURM_CONF": "/nowhere", **environ}
    assert site.kills_on_bad_exit(told, KILLS) == kills


def test_slurm_conf_is_looked_for_where_srun_does() -> None:
    there = [place for place in site.PLACES if os.path.exists(place)]
    assert site.path({}) == [*there, site.PLACES[0]][0]
    assert site.path({"SLURM_CONF": "x"}) == "x"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("KillWait=12\n", "12"),
        ("killwait = 12 # seconds\n", "12"),
        ("#KillWait=3\nKILLWAIT=1\nMessageTimeout=9 KillWait=12\n", "12"),
        ("Include more.conf\n", "40"),
        ("include \\\n  more.conf\nKillWait=12", "12"),
        ("Include slurm.conf\nInclude /dev/zero\n", None),
        ("", None),
    ],
)
def test_slurm_conf_is_read_as_slurm_reads_it(
    tmp_path: Path, text: str, expected: str | None
) -> None:
    (tmp_path / "more.conf").write_text("KillWait=40\n")
    (tmp_path / "slurm.conf").write_text(text)
    environ = {"SLURM_CONF": str(tmp_path / "slurm.conf")}
    assert site.value("KillWait", environ) == expected
    assert site.kill_wait_s(environ) == int(expected or 30)


@pytest.mark.parametrize("path", ["/dev/zero", "fifo", "no such file", "."])
def test_a_slurm_conf_that_is_none_is_none(tmp_path: Path, path: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    environ = {"SLURM_CONF": str(tmp_path / path)}
    assert site.kill_wait_s(environ) is None
    assert site.value("KillWait", environ) is None
