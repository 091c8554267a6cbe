"""Which versions are tried, and with which tests."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

NEWEST = MappingProxyType({"torch": "", "numpy": "", "psutil": ""})  # that pip finds


class Row(NamedTuple):
    """A Python, and what is installed for it, as pip reads it."""

    name: str
    python: str
    packages: Mapping[str, str] = NEWEST


ROWS = [
    Row("oldest", "3.10", {"torch": "==2.4.0", "numpy": "==1.26.0", "psutil": "==5.9.0"}),
    *(Row(f"newest-{minor}", f"3.{minor}") for minor in (13, 14)),
]
NEEDED = [
    "pytest>=8",
    "pytest-timeout>=2.3",
    "hypothesis>=6.100",
    "tomli>=2; python_version < '3.11'",
]
TESTS = [
    *("tests/run/test_local.py", "tests/run/test_restarts.py", "tests/calling/test_launch.py"),
    *("tests/torchrun/test_lines.py", "tests/train/test_train_exact.py"),
]
