"""What a wheel installs, beside a user's own modules of the same names."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.support.launching import run

ROOT = Path(__file__).parents[1]
# What torch and the others are taken from; the package itself is of the wheel.
DEPENDENCIES = sysconfig.get_path("purelib")
ONE_STEP = "--steps 1 --layers 1 --width 32 --context 16 --eval-every 0 --device cpu --out run"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the repository, built by the backend that is installed here."""
    out = tmp_path_factory.mktemp("wheel")
    words = ("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", out, ROOT)
    subprocess.run([sys.executable, "-m", "pip", *map(str, words)], check=True)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment with the wheel in it."""
    place = tmp_path_factory.mktemp("fresh")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    fresh = place / "bin" / "python"
    words = ("--python", fresh, "install", "--quiet", "--no-deps", "--no-index", wheel)
    subprocess.run([sys.executable, "-m", "pip", *map(str, words)], check=True)
    (site,) = place.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(DEPENDENCIES + "\n")
    return fresh


@pytest.fixture
def crowded(tmp_path: Path) -> Path:
    """A directory with a user's train.py, train/ and signal.py."""
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "__init__.py").write_text("raise SystemExit('the train/ of the user')\n")
    (tmp_path / "signal.py").write_text("raise SystemExit('the signal.py of the user')\n")
    (tmp_path / "train.py").write_text("print('the train.py of the user')\n")
    return tmp_path


def test_a_wheel_has_one_top_level_package(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()
    roots = {name.partition("/")[0] for name in names}
    assert {root for root in roots if not root.endswith(".dist-info")} == {"spawnlaunch"}
    assert "spawnlaunch/train/__main__.py" in names
    assert "spawnlaunch/train/tasks/language.py" in names


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("spawnlaunch --nproc 1 train.py", "the train.py of the user\n"),
        (f"spawnlaunch --nproc 1 -- {ONE_STEP}", "validation loss "),
        ("spawnlaunch.bench --nproc 1 --help", "usage: "),
        ("spawnlaunch.check", "rank"),
        (f"spawnlaunch.train {ONE_STEP} --loader-workers 1", "validation loss "),
    ],
)
def test_a_program_runs_beside_modules_of_the_user(
    python: Path, crowded: Path, words: str, said: str
):
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "SLURM"))}
    done = run(python, "-m", *words.split(), cwd=crowded, environ=environ)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
