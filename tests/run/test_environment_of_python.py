"""An environment is active in the shell, and workers run the Python of another one."""

import os
import sys
from pathlib import Path

import pytest

from spawnlaunch.cli import active
from tests.support.launching import clean_environ, launch

MISSING = "ModuleNotFoundError: No module named 'nobody_has_this'"


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """Another environment, whose Python says who it is."""
    (tmp_path / "venv/bin").mkdir(parents=True)
    python = tmp_path / "venv/bin/python"
    python.write_text(f'#!/bin/sh\necho from the venv\nexec {sys.executable} -c ""\n')
    python.chmod(0o755)
    return tmp_path / "venv"


@pytest.mark.parametrize("words", ["script", "-m nobody_has_this"])
@pytest.mark.parametrize("variable", active.ACTIVE)
@pytest.mark.parametrize("nproc", [1, 2])
def test_where_a_module_is_missing_a_line_names_both_and_what_to_put_before_the_command(
    variable: str, words: str, nproc: int, venv: Path, tmp_path: Path
):
    script = tmp_path / "script.py"
    script.write_text("import nobody_has_this\n")
    command = ("--nproc", nproc, "--quiet", *words.replace("script", str(script)).split())
    environ = clean_environ(**{variable: str(venv)})
    done = launch(*command, environ=environ)
    said = (
        f"workers run {sys.executable}, and the active environment is another ({variable}={venv})"
    )
    assert done.stderr.count(said) == 1
    line = next(line for line in done.stderr.splitlines() if said in line)
    name, _, value = line.partition("put ")[2].partition(" before")[0].partition("=")
    again = launch(*command, environ={**environ, name: value})
    assert (again.returncode, again.stdout.count("from the venv")) == (0, nproc)


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({}, MISSING),
        ({"VIRTUAL_ENV": sys.prefix}, MISSING),
        ({"VIRTUAL_ENV": sys.prefix, "CONDA_PREFIX": "/opt/conda"}, MISSING),
        ({"VIRTUAL_ENV": f"{sys.prefix}/lib/.."}, MISSING),
        ({"VIRTUAL_ENV": "/opt/other"}, "ValueError: no such batch"),
        ({"VIRTUAL_ENV": ""}, MISSING),
        ({"VIRTUAL_ENV": sys.prefix}, None),
    ],
)
def test_nothing_is_said_of_the_workers_own_environment_or_of_another_failure(environ, words):
    assert not active.other(sys.executable, environ, words)


def test_one_that_is_not_there_is_to_be_unset():
    line = active.other(sys.executable, {"VIRTUAL_ENV": "/opt/other"}, MISSING)
    assert line.endswith("which has no /opt/other/bin/python; unset VIRTUAL_ENV")


def test_the_python_of_the_variable_counts(tmp_path: Path):
    own = os.path.join(tmp_path, "bin", "python")
    assert not active.other(own, {"VIRTUAL_ENV": str(tmp_path)}, MISSING)
