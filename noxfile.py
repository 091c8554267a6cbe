"""The tests of launching, of torchrun's command lines and of training, with other versions.

    python -m nox              both, as `make nightly` does
    python -m nox -s oldest

Each session has an environment of its own, of some gigabytes where torch is one for CUDA.
"""

import nox

PROJECT = nox.project.load_toml("pyproject.toml")["project"]
TOOLS = ("pytest", "pytest-timeout", "pytest-xdist", "hypothesis")
TESTS = ("tests/run/test_local.py", "tests/calling", "tests/torchrun", "tests/train")


@nox.session(python=PROJECT["requires-python"].removeprefix(">="))
def oldest(session: nox.Session) -> None:
    """The oldest Python and packages that the project allows."""
    run(session, *(each.replace(">=", "==") + ".*" for each in PROJECT["dependencies"][:3]))


@nox.session(python=["3.13", "3.14"])
def newest(session: nox.Session) -> None:
    """A newer Python, and the newest packages that pip finds."""
    run(session, "--upgrade", *PROJECT["dependencies"][:3])


def run(session: nox.Session, *packages: str) -> None:
    session.install(*packages, *TOOLS, "tomli")
    report = f"--junit-xml=build/nightly/{session.name}.xml"
    session.run("python", "-m", "pytest", "-n", "2", report, *session.posargs, *TESTS)
