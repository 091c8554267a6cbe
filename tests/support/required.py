"""What a test does where a program it needs is not installed: skip and say so, but fail in CI.

A continuous integration run that quietly skips proves nothing, so there (CI is set, as every hosted
service sets it) a missing program is a failure. Called at the top of a test module, the skip is one
line for the whole module.
"""

import os
import shutil
from importlib.util import find_spec

import pytest

INSTALL = "pip install --constraint constraints.txt --group"
DEVELOPMENT = f"{INSTALL} dev"


def require_programs(*programs: str, package: str) -> None:
    """Skip, or in CI fail, unless every program is on the PATH; `package` is what to install."""
    if missing := [program for program in programs if not shutil.which(program)]:
        skip_or_fail(f"needs {', '.join(missing)} (Debian: apt install {package})")


def require_packages(*packages: str, group: str = "dev") -> None:
    """Skip, or in CI fail, unless Python has every package; `group` of pyproject.toml has them."""
    if missing := [package for package in packages if not find_spec(package)]:
        skip_or_fail(f"needs {', '.join(missing)} ({INSTALL} {group})")


def require_root() -> None:
    """Skip, or in CI fail, unless root: namespaces and daemons of other users need it."""
    if os.geteuid() != 0:
        skip_or_fail("needs root")


def skip_or_fail(reason: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(f"{reason}, and a CI run must not skip", pytrace=False)
    pytest.skip(reason, allow_module_level=True)
