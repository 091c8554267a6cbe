"""All effects of a launch go through `spawnlaunch.machine`: nothing above it calls the system."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "spawnlaunch"

# The rooms of a launch that is under way. What comes before it reads the command line and /sys.
ROOMS = [
    *sorted((ROOT / "run").rglob("*.py")),
    *sorted((ROOT / "gang").glob("*.py")),
    *(ROOT / "node" / name for name in ("proc.py", "sysfs.py", "cgroup.py")),
    *(ROOT / "world" / name for name in ("host.py", "lookup.py")),
    ROOT / "reading.py",
]

# What is no effect: constants apart, which are written in capitals.
PURE = {
    "os": {"path", "environ", "strerror", "fsencode", "fsdecode", "sep", "devnull", "linesep",
           "waitstatus_to_exitcode", "stat_result", "terminal_size", "get_exec_path"},
    "time": {"strftime", "localtime"},
    "signal": {"Signals", "struct_siginfo", "default_int_handler", "Handlers"},
    "select": {"epoll", "poll"},  # as types
    "socket": {"socket", "gaierror", "inet_ntoa", "AddressFamily"},  # types, an error, no system
}  # fmt: skip
EFFECTS = {"fcntl", "termios", "resource", "subprocess", "shutil", "tempfile", "mmap", "ctypes"}

# Each with the reason.
EXCEPTIONS = {
    "run/preload/libraries.py": "calls functions of OpenBLAS, in the image that has loaded it",
}


def _calls_past_the_door(path: Path) -> list[str]:
    found = []
    tree = ast.parse(path.read_text())
    typing_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and getattr(block.test, "id", "") == "TYPE_CHECKING"
        for each in block.body
        for node in ast.walk(each)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module, name = node.value.id, node.attr
            if module in PURE and not name.isupper() and name not in PURE[module]:
                found.append(f"{path.name}:{node.lineno}: {module}.{name}")
        elif isinstance(node, ast.Import):
            names = {alias.name for alias in node.names} & EFFECTS
            found += [f"{path.name}:{node.lineno}: import {name}" for name in names]
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "open":
            found.append(f"{path.name}:{node.lineno}: open")
    return found


@pytest.mark.parametrize("path", ROOMS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_room_calls_the_system_through_the_door(path):
    where = str(path.relative_to(ROOT))
    found = _calls_past_the_door(path)
    if any(where.startswith(exception) for exception in EXCEPTIONS):
        return
    assert not found
