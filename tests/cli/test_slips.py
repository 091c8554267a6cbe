"""Words in the place of a flag or of the script that are none: what is said to type works.

The commonest have a row in tests/messages, which also runs what is said.
"""

import re
import shlex
import sys
from pathlib import Path

import pytest

from spawnlaunch.base import errors
from spawnlaunch.cli import flags, parsing

HERE = flags.HERE
pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where say.py is a script of Python's, and the others are none."""
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "say.py": "", "plain.sh": "echo\n", "run": "#!/usr/bin/env -S A=1 bash -e\n",
        "also": "#!/bin/sh\n'''exec' python \"$0\"\n'''\n", "own": "#!/usr/bin/env python3\n",
        "crlf.py": "#!/usr/bin/env python3\r\npass\r\n",
    }.items():  # fmt: skip
        (tmp_path / name).write_text(text, newline="")
    (tmp_path / "run").chmod(0o755)


# Words of a command line, and those that are to be typed instead.
SAID = {
    ("python3.12", "-u", "say.py"): ("say.py",),
    ("python", "-c", "print(1)"): ("--no-python", "python", "-c", "print(1)"),
    ("accelerate", "launch", "--num_processes", "2", "say.py", "x"): ("say.py", "x"),
    ("mpirun", "-n", "2", "python", "say.py"): ("say.py",),
    ("plain.sh", "a"): ("--no-python", "sh", "./plain.sh", "a"),
    ("run",): ("--no-python", "./run"),
    ("\u200b", "say.py"): ("say.py",),
    ("\u2212m", "pkg"): ("-m", "pkg"),
    ("\ufeff--nnodes", "1", "say.py"): ("--nnodes", "1", "say.py"),
    ("say.py\u00a0",): ("say.py",),
}


@pytest.mark.parametrize("words", SAID, ids=ascii)
def test_what_is_said_to_type_is_read_as_it_was_meant(words):
    before = ("--nproc", "2")
    with pytest.raises(errors.UsageError) as error:
        parsing.parse([*before, *words], {}, sys.executable)
    said = str(error.value)
    line = re.search(rf"run {re.escape(HERE)} (.*?)(; to have .*)?$", said)
    assert line, said
    assert tuple(shlex.split(line[1])) == (*before, *SAID[words])
    if words[0] != "python":
        parsing.parse(shlex.split(line[1]), {}, sys.executable)


@pytest.mark.parametrize(
    ("words", "typed"),
    [
        (("--nproc\u00a02", "say.py"), "--nproc 2"),
        (("--nproc\u200b", "2", "say.py"), "--nproc"),
        (("--quiet\r", "say.py"), "--quiet"),
        (("--log-dir", "logs\r", "say.py"), "logs"),
        (("--nproc=2\r", "say.py"), "2"),
        (("-m", "pkg\r"), "pkg"),
        (("--no-python", "true\r"), "true"),
    ],
    ids=ascii,
)
def test_one_word_is_mended(words, typed: str):
    with pytest.raises(errors.UsageError, match=rf"use {re.escape(typed)}(;|$)"):
        parsing.parse(words, {}, sys.executable)


@pytest.mark.parametrize("script", ["say.py", "also", "own", "crlf.py"])
def test_what_python_runs_is_taken_and_the_arguments_are_the_scripts(script: str):
    words = (script, "a\r", "\u2014b", " ", "python", "# c")
    request = parsing.parse(words, {"IFS": " \r", "NOTE": "x\r"}, sys.executable)
    assert request.program == ("script", script, words[1:])


VARIABLES = ("MASTER_ADDR", "WORLD_SIZE", "PET_NNODES", "SLURM_NTASKS", "CUDA_VISIBLE_DEVICES")


@pytest.mark.parametrize("name", [*VARIABLES, "OMP_NUM_THREADS"])
def test_a_variable_that_a_launch_reads_may_not_end_so(name: str):
    with pytest.raises(errors.UsageError, match=f"; export {name}=1; "):
        parsing.parse(["say.py"], {name: "1\r"}, sys.executable)
