"""Run a case under one of the launchers: each node's lines one after another, all nodes at once."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.dropin.launches import PATIENCE_S, TORCHRUN, Seen, Warm, see, started_here
from tests.dropin.line import Line
from tests.support.launching import clean_environ
from tests.support.ports import free_port
from tests.support.processes import until

Streams = int | Mapping[str, int]


class Call(NamedTuple):
    """A function that is called in workers, see functions.py, by elastic_launch."""

    function: str
    args: tuple[Any, ...] = ()
    nproc_per_node: int = 2
    nodes: tuple[int, int] = (1, 1)  # at least, at most
    role: str = "default"
    max_restarts: int = 0
    redirects: Streams = 0
    tee: Streams = 0


class Called(NamedTuple):
    """What came of a call."""

    status: int
    stdout: str
    files: dict[str, str]
    said: Mapping[str, Any] = MappingProxyType({})


Came = Seen | Called
Check = Callable[[Sequence[Any]], bool]  # of what came, by node


class Case(NamedTuple):
    """A test of PyTorch's, seen from outside."""

    file: str  # below test/distributed
    test: str
    asks: str
    nodes: tuple[tuple[Line | Call, ...], ...]  # what each types, one after another
    checks: tuple[Check, ...]
    differs: str = ""  # the row of docs/torchrun.md that says why it does not hold here
    unsteady: str = ""  # why torchrun does not do so each time

    def __str__(self) -> str:
        return f"{self.file}::{self.test} {self.asks}"


def came(case: Case, launcher: str, warm: Warm | None, top: Path) -> list[Came]:
    """What the last line of each node has come to."""
    port = str(free_port())

    def node(number: int) -> Came:
        for turn, line in enumerate(case.nodes[number]):
            place = top / f"{number}.{turn}"
            if isinstance(line, Line):
                last: Came = see(line, launcher, warm, place, {"port": port})
            else:
                last = _call(line, launcher, warm, place, port)
        return last

    with ThreadPoolExecutor(len(case.nodes)) as pool:
        return list(pool.map(node, range(len(case.nodes))))


def holds(case: Case, launcher: str, warm: Warm | None, top: Path) -> bool:
    """Whether all that the test asks for has come."""
    try:
        nodes = came(case, launcher, warm, top)
    except AssertionError as error:  # it has not ended
        print(f"{launcher}: {case}\n{error}", file=sys.stderr)
        return False
    failed = [number for number, check in enumerate(case.checks) if not check(nodes)]
    if failed and not case.differs:
        print(f"{launcher}: {case}\nchecks {failed} do not hold of {nodes}", file=sys.stderr)
    return not failed


def _call(call: Call, launcher: str, warm: Warm | None, place: Path, port: str) -> Called:
    order = call._asdict()
    least, most = order.pop("nodes")
    order |= {"min_nodes": least, "max_nodes": most, "rdzv_backend": "c10d"}
    order |= {"rdzv_endpoint": f"localhost:{port}", "logs": str(place / "logs")}
    (place / "logs").mkdir(parents=True)
    streams = {name: place / name for name in ("stdin", "stdout", "stderr")}
    for stream in streams.values():
        stream.touch()
    started = (warm.start if launcher == TORCHRUN and warm else started_here)(
        {
            "program": "call",
            "words": [launcher, json.dumps(order)],
            "environ": clean_environ(TMPDIR=str(place)),
            "cwd": str(place),
            **{name: str(stream) for name, stream in streams.items()},
        }
    )
    until(lambda: started.poll() is not None, f"{call} has ended", 4 * PATIENCE_S)
    files = {str(file.relative_to(place)): file.read_text(errors="replace")
             for file in sorted((place / "logs").rglob("*")) if file.is_file()}  # fmt: skip
    if status := started.poll():
        return Called(status, streams["stderr"].read_text(), files)
    stdout = streams["stdout"].read_text()
    *_, last = stdout.splitlines()
    return Called(0, stdout, files, json.loads(last))
