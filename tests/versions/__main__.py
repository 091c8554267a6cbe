"""The tests of launching, of torchrun's command lines and of training, with other versions.

    python -m tests.versions             each row; docs/versions.md is written
    python -m tests.versions NAME ...    these rows again, such as oldest

Each row has a virtual environment of its own in build/versions, of some gigabytes where torch is
one for CUDA; it is used again, and `make clean` removes it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.launching import ROOT, clean_environ
from tests.versions.page import PAGE, Result, page
from tests.versions.rows import NEEDED, ROWS, TESTS, Row

BUILD = ROOT / "build" / "versions"
AT_ONCE = 2
FOUND = BUILD / "found.json"
VERSIONS = (
    "import json, platform, importlib.metadata as m;"
    "print(json.dumps([platform.python_version(), *map(m.version, ('torch', 'numpy', 'psutil'))]))"
)
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
COUNTED = re.compile(r"(\d+) (passed|failed|error|skipped)")


def python(minor: str) -> str | None:
    """An interpreter of this version, from PATH or of pyenv."""
    if found := shutil.which(f"python{minor}"):
        works = subprocess.run([found, "-c", ""], capture_output=True, check=False)
        if works.returncode == 0:  # pyenv has a word on PATH for each version that it does not use
            return found
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    return next((str(each) for each in pyenv.glob(f"versions/{minor}.*/bin/python")), None)


def result(row: Row) -> Result:
    """Install the versions, and run the tests with them."""
    interpreter = python(row.python)
    if interpreter is None:
        return Result(missing=f"no Python {row.python} on this machine")
    place = BUILD / row.name / "bin" / "python"
    if not place.exists():
        subprocess.run([interpreter, "-m", "venv", BUILD / row.name], check=True)
    packages = [f"{name}{version}" for name, version in row.packages.items()]
    pip = [place, "-m", "pip", "install", "--quiet", "--no-cache-dir", *packages, *NEEDED]
    done = subprocess.run(pip, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return Result(missing=done.stderr.strip().splitlines()[-1])
    return tried(str(place))


def tried(interpreter: str) -> Result:
    """What the tests come to with this interpreter and what is installed for it."""
    versions = subprocess.run([interpreter, "-c", VERSIONS], capture_output=True, text=True)
    versions.check_returncode()
    with TemporaryDirectory(prefix="t-") as base:
        done = subprocess.run(
            [interpreter, *PYTEST, f"--basetemp={base}/t", *TESTS],
            cwd=ROOT, env=clean_environ(), stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
    print(done.stdout, flush=True)
    counts = {word: int(number) for number, word in COUNTED.findall(done.stdout.splitlines()[-1])}
    broken = counts.get("failed", 0) + counts.get("error", 0)
    if done.returncode and not broken:
        return Result(missing=f"pytest ended with status {done.returncode}")
    return Result(
        json.loads(versions.stdout), counts.get("passed", 0), broken, counts.get("skipped", 0)
    )


def main(names: list[str]) -> None:
    BUILD.mkdir(parents=True, exist_ok=True)
    found = json.loads(FOUND.read_text()) if names else {}
    rows = [row for row in ROWS if not names or row.name in names]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for row, came in zip(rows, pool.map(result, rows), strict=True):
            found[row.name] = came
            FOUND.write_text(json.dumps(found))
    PAGE.write_text(page([Result(*found[row.name]) for row in ROWS]), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
