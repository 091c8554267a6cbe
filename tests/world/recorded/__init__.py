"""Environments as recorded or documented, one file per resource manager: data, and its source.

A case is the environment, what is typed, and what must come of it: the world with the source of
each value, or a refusal that ends in the flag to type.
"""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from spawnlaunch.world import managers
from tests.support.launching import LAUNCHER

HERE = os.uname().nodename
UNKNOWN = "not exported"
LAUNCH = " ".join(LAUNCHER)
MANAGERS = [managers.load(module, name) for _, module, name in managers.ORDER]


class Found(NamedTuple):
    """What is derived: {question: (value, source)}, or {question: value}."""

    mode: str
    values: Mapping[str, Any]
    flags: str = ""


class Refused(NamedTuple):
    """Exit status 2, and what the one line says."""

    said: str
    flags: str = ""


class Case(NamedTuple):
    """`files` are written first; {files} in a variable is their directory."""

    name: str
    environ: Mapping[str, str]
    expected: Found | Refused
    files: Mapping[str, str] = {}
