"""What a wheel installs, beside a user's own modules of the same names."""

import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.support.launching import run
from tests.support.matrix import mostly_full

pytestmark = pytest.mark.full  # it builds wheels, and installs them

ROOT = Path(__file__).parents[1]
# What torch and the others are taken from; the package itself is of the wheel.
DEPENDENCIES = sysconfig.get_path("purelib")
RUN_MODULE = "import runpy, sys; sys.path[0] = sys.argv.pop(1); name = sys.argv.pop(1); "
RUN_MODULE += "runpy.run_module(name, run_name='__main__', alter_sys=True)"
ONE_STEP = "--steps 1 --layers 1 --width 32 --context 16 --eval-every 0 --device cpu --out run"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the repository, built by the backend that is installed here."""
    return build(ROOT, tmp_path_factory.mktemp("wheel"))


def build(source: Path, out: Path) -> Path:
    words = ("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", out, source)
    subprocess.run([sys.executable, "-m", "pip", *map(str, words)], check=True)
    (built,) = out.glob("*.whl")
    return built


def names(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


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


def test_a_wheel_has_one_top_level_package_and_a_line_for_each_start(wheel: Path):
    files = names(wheel)
    roots = {name.partition("/")[0] for name in files if ".dist-info/" not in name}
    assert roots == {"spawnlaunch", "spawnlaunch-witness.pth"}
    assert "spawnlaunch/train/__main__.py" in files
    assert "spawnlaunch/train/tasks/language.py" in files


def test_a_wheel_of_the_sdist_has_the_same_files(wheel: Path, tmp_path: Path):
    words = ("-m", "hatchling", "build", "--target", "sdist", "--directory", tmp_path)
    subprocess.run([sys.executable, *map(str, words)], check=True, cwd=ROOT)
    (sdist,) = tmp_path.glob("*.tar.gz")
    again = build(sdist, tmp_path)
    assert names(again) == names(wheel)


def test_a_wheel_says_where_its_readme_leads(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        metadata = archive.read(name).decode()
    assert "Project-URL: Documentation, https://" in metadata
    assert re.findall(r"\]\((?!https?://|#)[^)]*\)", metadata) == []


@pytest.mark.parametrize("words", ["spawnlaunch.check", "spawnlaunch.bench", "spawnlaunch.train"])
def test_torch_that_is_missing_is_said_in_one_line(words: str, wheel: Path, tmp_path: Path):
    command = (sys.executable, "-S", "-c", RUN_MODULE, wheel, words)  # -S: nothing is installed
    done = run(*command, cwd=tmp_path, environ={"PATH": os.environ["PATH"]})
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith("; run pip install torch\n")


def test_a_script_of_the_wheel_is_copied_with_one_line(python: Path, tmp_path: Path):
    done = run(python, "-m", "spawnlaunch.scripts", "nodes.sh", cwd=tmp_path)
    assert done.stdout == (ROOT / "slurm" / "nodes.sh").read_text()
    listed = run(python, "-m", "spawnlaunch.scripts", cwd=tmp_path).stdout
    assert {line.split()[0] for line in listed.splitlines()} == {
        path.name for folder in ("slurm", "kubernetes") for path in (ROOT / folder).glob("*.[sy]*")
    }
    wrong = run(python, "-m", "spawnlaunch.scripts", "node.sh", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "use one of alps.sh, " in wrong.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("spawnlaunch --nproc 1 train.py", "the train.py of the user\n"),
        ("spawnlaunch.bench --nproc 1 --help", "usage: "),
        *mostly_full(
            [
                ("spawnlaunch.check", "rank"),
                (f"spawnlaunch --nproc 1 -- {ONE_STEP}", "validation loss "),
                (f"spawnlaunch.train {ONE_STEP} --loader-workers 1", "validation loss "),
            ],
            0,
        ),
    ],
)
def test_a_program_runs_beside_modules_of_the_user(
    python: Path, crowded: Path, words: str, said: str
):
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "SLURM"))}
    done = run(python, "-m", *words.split(), cwd=crowded, environ=environ)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
