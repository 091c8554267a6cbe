"""Environments as recorded or documented: a JSON file for each resource manager.

`source` says where they are from. `environments` have names; one that is a list has all that its
parts have, the last of which counts. A case has an environment, what is typed (`flags`), files
that are written first, and what must come of it: a `mode` and a `world` with [value, source], or
the value alone, for questions; or what the one line says by which it is `refused`. {here} is the
name of this host, {files} the directory of the files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from spawnlaunch.world import managers

Environ = dict[str, str]
HERE = os.uname().nodename
MANAGERS = [managers.load(module, name) for _, module, name in managers.ORDER]


class Case(NamedTuple):
    """An environment, and what must come of it: `world`, or what is `refused`."""

    name: str
    environ: Environ
    flags: str = ""
    files: Mapping[str, str] = {}
    mode: str = ""
    world: Mapping[str, Any] = {}
    refused: str = ""

    def made(self, directory: Path) -> Environ:
        """Write the files there; the result is the environment that names them."""
        for name, text in self.files.items():
            (directory / name).write_text(text)
        return {k: v.replace("{files}", str(directory)) for k, v in self.environ.items()}


class Recording(NamedTuple):
    """What is in a file: environments by name, and the whole."""

    environments: dict[str, Environ]
    content: dict[str, Any]

    def environ(self, parts: str | Environ | list[str | Environ]) -> Environ:
        """The environment of these parts."""
        merged: Environ = {}
        for part in parts if isinstance(parts, list) else [parts]:
            merged |= self.environments[part] if isinstance(part, str) else part
        return merged

    def cases(self) -> list[Case]:
        """The cases of a manager's file."""
        found = self.content["cases"]
        return [Case(**{**each, "environ": self.environ(each["environ"])}) for each in found]


def read(file: Path) -> Recording:
    """What is recorded in a file."""
    content = json.loads(file.read_text().replace("{here}", HERE))
    recording = Recording({}, content)
    for name, parts in content["environments"].items():
        recording.environments[name] = recording.environ(parts)
    return recording


RECORDED = {file.stem: read(file) for file in sorted(Path(__file__).parent.glob("*.json"))}
