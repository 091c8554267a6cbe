"""Whether the last commit can be released: checked in a clean clone of it.

    python -m tests.release [--quick]

Runs `make lint docs full clients stress` there (--quick: lint and docs alone), builds wheel and
sdist into dist/, beside a list of what the tests ran with, installs the wheel in an environment of
its own, launches with it, and renders the page that an index shows. At the end it says what a
person still has to do.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
SUITES = ("full", "clients", "stress")
BY_HAND = """
What a person still has to do:
  make gpu, on a machine that has one, and a line of docs/gpu.md on what it showed
  make bench, on a quiet machine, if the launch path has changed
  read the README aloud, and {page} in a browser
  git tag v{version} on this commit, once CI has passed it; the section of CHANGELOG.md is its text
  upload dist/* of this commit, and build/site
  install what was uploaded, and type spawnlaunch --version
"""


def run(*words: object, cwd: Path = ROOT) -> str:
    """What a command prints. Raises CalledProcessError."""
    done = subprocess.run(
        [*map(str, words)], cwd=cwd, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def version_of(source: Path) -> str:
    """That of the package."""
    text = (source / "spawnlaunch" / "__init__.py").read_text()
    return re.findall(r'^__version__ = "(.+)"$', text, re.M)[0]


def complaints(source: Path) -> Iterator[str]:
    """What of the last commit cannot be released as it is."""
    if changed := run("git", "status", "--porcelain", cwd=source):
        yield f"there are changes that are not committed:\n{changed}"
    version = version_of(source)
    first = re.findall(r"^## (\S+)", (source / "CHANGELOG.md").read_text(), re.M)[0]
    if first != version:
        yield f"the version is {version}, and the first section of CHANGELOG.md is {first}"
    if f"v{version}" in run("git", "tag", cwd=source).split():
        yield f"{version} has been released: there is a tag v{version}"


def build(clone: Path, out: Path) -> Path:
    """Wheel and sdist; the result is the wheel."""
    python = clone / ".venv" / "bin" / "python"
    for target in ("wheel", "sdist"):
        run(python, "-m", "hatchling", "build", "--target", target, "--directory", out, cwd=clone)
    (out / "tested-with.txt").write_text(run(python, "-m", "pip", "freeze", cwd=clone))
    (wheel,) = out.glob(f"*-{version_of(clone)}-*.whl")
    return wheel


def try_out(wheel: Path, constraints: Path, place: Path) -> None:
    """Install it where nothing else is, and launch."""
    venv.create(place, with_pip=True)
    python = place / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--constraint", constraints, wheel)
    print(run(place / "bin" / "spawnlaunch", "--version", cwd=place), end="")
    check = ("-m", "spawnlaunch", "--nproc", 2, "--quiet", "-m", "spawnlaunch.check", "--warn-only")
    print(run(python, *check, cwd=place), end="")


def page_of(wheel: Path, clone: Path) -> Path:
    """The page of an index: the description in the wheel's metadata, as HTML."""
    place = wheel.with_suffix(".html")
    program = (
        "import sys, zipfile, email, markdown; archive = zipfile.ZipFile(sys.argv[1]);"
        "name = next(n for n in archive.namelist() if n.endswith('.dist-info/METADATA'));"
        "text = email.message_from_bytes(archive.read(name)).get_payload();"
        "print(markdown.markdown(text, extensions=['tables', 'fenced_code']))"
    )
    place.write_text(run(clone / ".venv" / "bin" / "python", "-c", program, wheel))
    return place


def main(argv: Sequence[str] | None = None) -> int:
    """Status 1 where something is in the way of a release."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="leave the tests out")
    options = parser.parse_args(argv)
    wrong = [*complaints(ROOT)]
    with tempfile.TemporaryDirectory() as scratch:
        clone = Path(scratch, "clone")
        run("git", "clone", "--quiet", ROOT, clone)
        try:
            for target in ("lint", "docs", *(() if options.quick else SUITES)):
                print(f"make {target}", flush=True)
                run("make", target, cwd=clone)
            if stale := run("git", "status", "--porcelain", cwd=clone):
                wrong.append(f"pages that make docs makes anew are not committed:\n{stale}")
            wheel = build(clone, ROOT / "dist")
            try_out(wheel, clone / "constraints.txt", Path(scratch, "fresh"))
            page = page_of(wheel, clone)
        except subprocess.CalledProcessError as error:
            print(error.stdout, file=sys.stderr)
            wrong.append(str(error))
    for line in wrong:
        print(f"not to be released: {line}", file=sys.stderr)
    if wrong:
        return 1
    print(BY_HAND.format(version=version_of(ROOT), page=page), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
