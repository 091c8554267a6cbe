"""All effects of a launch go through `base.machine`: nothing above it calls the system."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "spawnlaunch"

# The rooms of a launch that is under way. What comes before it reads the command line and /sys.
ROOMS = [
    *sorted((ROOT / "run").rglob("*.py")),
    *sorted((ROOT / "multinode").glob("*.py")),
    *(
        file
        for room in ("hang", "outcome", "output")
        for file in sorted((ROOT / room).glob("*.py"))
    ),
    *sorted((ROOT / "workers").glob("*.py")),
    *(ROOT / "node" / name for name in ("proc.py", "sysfs.py", "cgroup.py")),
    *(ROOT / "world" / name for name in ("host.py", "lookup.py", "meeting.py")),
    *(ROOT / name for name in ("binding/apply.py", "watch/journal.py")),
    *(
        ROOT / f"base/{name}.py"
        for name in ["events", "signals", "say", "reading", "errors", "records"]
    ),
]

# What is no effect of these modules, beside constants, whose names are capitals.
PURE = {
    "os": {"path", "environ", "strerror", "fsencode", "fsdecode", "sep", "devnull", "linesep",
           "waitstatus_to_exitcode", "stat_result", "terminal_size", "get_exec_path"},
    "os.path": {"join", "basename", "dirname", "split", "splitext", "isabs", "normpath",
                "commonpath", "samestat"},
    "time": {"strftime", "gmtime", "localtime"},
    "signal": {"Signals", "struct_siginfo", "default_int_handler", "Handlers"},
    "select": set(),
    "socket": {"gaierror", "inet_ntoa", "AddressFamily"},
    "sys": {"argv", "byteorder", "executable", "flags", "platform", "maxsize", "modules", "path",
            "version_info", "hexversion"},
}  # fmt: skip
# As the type of something that the door has made: to be named, and not to be called.
TYPES = {"select": {"epoll", "poll"}, "socket": {"socket"}}
# Modules that compute. Those of PURE are looked into; any other one is an effect.
COMPUTING = frozenset({
    "__future__", "array", "bisect", "collections", "contextlib",
    "errno", "functools", "gc", "hashlib", "heapq", "hmac", "io", "itertools", "json", "math",
    "operator", "pickle", "re", "shlex", "stat", "struct", "traceback", "types", "typing", "zlib",
})  # fmt: skip
BUILTINS = frozenset({"open", "print", "input", "breakpoint"})

IMAGE = "what a forked worker does with the image that it has in place of a fresh one"
# Each with the reason.
EXCEPTIONS = {
    "run/preload/forked.py": IMAGE,
    "workers/starting.py: os.path.abspath": "of the place of this program",
    "watch/journal.py: os.path.abspath": "of the place of this program",
}


class Found:
    """What a file does past the door."""

    def __init__(self, source: str) -> None:
        tree = ast.parse(source)
        self._names: dict[str, str] = {}  # what a name stands for: a module, or something of one
        self._skipped = set(_for_types(tree))
        self._called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        self._nodes = [node for node in ast.walk(tree) if id(node) not in self._skipped]
        self.words = [*self._imports(), *self._uses()]

    def _imports(self) -> Iterator[str]:
        for node in self._nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self._names[alias.asname or alias.name.partition(".")[0]] = alias.name
                    yield from _strange(alias.name)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield from _strange(node.module)
                for alias in node.names:
                    if _plain(node.module) in PURE:
                        yield from self._effect(_plain(node.module), alias.name, is_called=False)

    def _uses(self) -> Iterator[str]:
        for node in self._nodes:
            if isinstance(node, ast.Attribute):
                module = self._module(node.value)
                yield from self._effect(module, node.attr, id(node) in self._called)
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in BUILTINS:
                yield getattr(node.func, "id", "")

    def _module(self, node: ast.expr) -> str:
        """The module that this expression is, or ""."""
        if isinstance(node, ast.Name):
            return _plain(self._names.get(node.id, ""))
        if isinstance(node, ast.Attribute) and node.attr == "path":
            return "os.path" if self._module(node.value) == "os" else ""
        return ""

    @staticmethod
    def _effect(module: str, name: str, is_called: bool) -> Iterator[str]:
        is_type = name in TYPES.get(module, ()) and not is_called
        if module in PURE and not name.isupper() and name not in PURE[module] and not is_type:
            yield f"{module}.{name}"


def _plain(module: str) -> str:
    """`_socket` and `_signal` are what `socket` and `signal` are made of."""
    return module[1:] if module[1:] in PURE else module


def _strange(module: str) -> Iterator[str]:
    room = module.partition(".")[0]
    if room not in (*COMPUTING, "spawnlaunch") and _plain(room) not in PURE:
        yield f"import {module}"


def _for_types(tree: ast.AST) -> Iterator[int]:
    """What is only there for those who check types."""
    for block in ast.walk(tree):
        if isinstance(block, ast.If) and getattr(block.test, "id", "") == "TYPE_CHECKING":
            yield from (id(node) for each in block.body for node in ast.walk(each))


@pytest.mark.parametrize("path", ROOMS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_room_calls_the_system_through_the_door(path):
    where = str(path.relative_to(ROOT))
    if where in EXCEPTIONS:
        return
    words = Found(path.read_text()).words
    assert not [each for each in words if f"{where}: {each}" not in EXCEPTIONS]


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.kill(1, 9)",
        "import os as system\nsystem.kill(1, 9)",
        "import os\nend = os.kill",
        "import os\nos.path.isdir('/tmp')",
        "from os import kill",
        "from os.path import exists",
        "from time import sleep",
        "import time as clock\nclock.sleep(1)",
        "import time\ntime.monotonic()",
        "import _signal as signal\nsignal.signal(15, None)",
        "import socket\nsocket.socket()",
        "import _socket\n_socket.socket()",
        "from socket import create_connection",
        "import select\nselect.poll()",
        "import sys\nsys.stderr.write('')",
        "def late():\n    from fcntl import ioctl",
        "import subprocess",
        "import pathlib",
        "from threading import Thread",
        "open('file')",
        "print('words')",
    ],
)
def test_what_goes_past_the_door_is_seen(source):
    assert Found(source).words


def test_what_only_names_and_computes_is_none():
    source = "import os, socket, select\nflags = os.O_RDONLY\nname = os.path.join('a', 'b')\n"
    assert not Found(f"{source}def take(of: socket.socket) -> select.epoll: ...").words
