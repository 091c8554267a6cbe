"""Our own finder gives the modules that Python's gives, with fewer look-ups."""

import importlib.util
import pkgutil
import shutil
import subprocess
import sys
import zipfile
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

import spawnlaunch
from spawnlaunch.finder import Finder
from tests.support.launching import clean_environ

PACKAGE = Path(spawnlaunch.__file__).parent


def spec_by_python(name: str):
    parent = importlib.util.find_spec(name.rpartition(".")[0])
    return PathFinder.find_spec(name, parent.submodule_search_locations)


def test_a_module_is_the_one_that_python_finds():
    names = [module.name for module in pkgutil.walk_packages(spawnlaunch.__path__, "spawnlaunch.")]
    assert names
    for name in names:
        ours, theirs = Finder.find_spec(name), spec_by_python(name)
        for said in ("name", "origin", "cached", "has_location", "submodule_search_locations"):
            assert getattr(ours, said) == getattr(theirs, said), name
        assert ours.loader.get_data(ours.origin) == Path(ours.origin).read_bytes(), name
        code, expected = (spec.loader.get_code(name) for spec in (ours, theirs))
        assert code == expected, name
        assert code.co_filename == expected.co_filename, name


@pytest.mark.parametrize("name", ["spawnlaunch", "spawnlaunch.nothing", "json", "spawnlaunchers.x"])
def test_others_are_left_to_python(name: str):
    assert Finder.find_spec(name) is None


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A directory with a copy of the package."""
    ignored = shutil.ignore_patterns("__pycache__", "train", "bench")
    shutil.copytree(PACKAGE, tmp_path / "site" / "spawnlaunch", ignore=ignored)
    return tmp_path / "site"


def launched(place: Path) -> str:
    """What the launcher that is found there says of its version."""
    command = (sys.executable, "-S", "-m", "spawnlaunch", "--version")
    environ = clean_environ(PYTHONPATH=str(place), PYTHONDONTWRITEBYTECODE="")
    return subprocess.run(
        command, env=environ, cwd="/", check=True, capture_output=True, text=True
    ).stdout


def test_a_file_that_was_changed_is_compiled_anew(copy: Path):
    cli = copy / "spawnlaunch" / "cli.py"
    first = launched(copy)
    assert list((copy / "spawnlaunch" / "__pycache__").glob("cli.*.pyc"))
    cli.write_text(f"{cli.read_text()}\nprint('changed', flush=True)\n")
    assert launched(copy) == f"changed\n{first}"


def test_a_package_in_a_zip_file_is_found_by_python(copy: Path, tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for file in copy.rglob("*.py"):
            archive.write(file, file.relative_to(copy))
    assert launched(tmp_path / "all.zip") == launched(copy)
