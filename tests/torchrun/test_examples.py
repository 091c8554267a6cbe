"""The command lines of torchrun's documentation, with only the word replaced.

They are read from the usage of the torchrun that is installed, and a shell runs them on each node,
with values for their variables.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.gang.namespaces import Network, may_make_namespaces
from tests.support.launching import ROOT, WORKERS, clean_environ
from tests.support.matrix import mostly_full
from tests.support.patience import PATIENCE_S
from tests.support.processes import until

TORCH = find_spec("torch")  # to import it takes seconds
pytestmark = pytest.mark.skipif(TORCH is None, reason="needs torch's documentation")
in_namespaces = pytest.mark.skipif(not may_make_namespaces(), reason="needs root and ip netns")

SCRIPT = "YOUR_TRAINING_SCRIPT.py (--arg1 ... train script args...)"
SINGLE, STACKED, FIXED, ELASTIC = (
    "torchrun --standalone --nnodes=1",
    "torchrun --rdzv-backend=c10d --rdzv-endpoint=localhost:0 --nnodes=1",
    "torchrun --nnodes=$NUM_NODES",
    "torchrun --nnodes=1:4",
)
SAY = str(WORKERS / "of_several.py")
Processes = dict[str, subprocess.Popen[str]]


def examples() -> list[str]:
    """The command lines of the usage, each in one line."""
    assert TORCH is not None
    assert TORCH.origin is not None
    source = (Path(TORCH.origin).parent / "distributed" / "run.py").read_text()
    return [
        " ".join(m[0].split()) for m in re.finditer(r"^    torchrun\n(?:     +.*\n)+", source, re.M)
    ]


def line(begins: str, script: str) -> str:
    """An example as a user of ours types it; their words are the only ones that change."""
    (text,) = [text for text in examples() if text.startswith(begins)]
    assert text.endswith(SCRIPT)
    word, rest = text.removesuffix(SCRIPT).split(" ", 1)
    assert word == "torchrun"
    return f"exec {sys.executable} -m spawnlaunch {rest}{script}"


def start(command: str, within: tuple[str, ...] = (), **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        (*within, "bash", "-c", command), cwd=ROOT, env=clean_environ(**variables), text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def ends(processes: Processes) -> dict[str, tuple[int, str, str]]:
    """Of each launcher: its status, and what it and its workers have said."""
    said = {name: one.communicate(timeout=PATIENCE_S) for name, one in processes.items()}
    return {name: (one.returncode, *said[name]) for name, one in processes.items()}


def told(output: str) -> list[dict[str, str]]:
    """What workers have printed, each its variables."""
    return [json.loads(line[line.index("{") :]) for line in output.splitlines() if "{" in line]


def test_these_are_all_examples():
    assert len(examples()) == 4
    for begins in (SINGLE, STACKED, FIXED, ELASTIC):
        line(begins, SAY)


def test_single_node_multi_worker():
    ((status, out, err),) = ends({"a": start(line(SINGLE, SAY), NUM_TRAINERS="2")}).values()
    assert status == 0, err
    assert sorted((one["RANK"], one["WORLD_SIZE"]) for one in told(out)) == [("0", "2"), ("1", "2")]


def test_stacked_single_node_multi_worker():
    """Two jobs at once on one machine are not merged, and have a port each."""
    command = line(STACKED, f"{SAY} sleep 3")
    found = ends({name: start(command, NUM_TRAINERS="2") for name in "ab"})
    ports = []
    for status, out, err in found.values():
        assert status == 0, err
        assert sorted(one["RANK"] for one in told(out)) == ["0", "1"]
        ports.append({one["MASTER_PORT"] for one in told(out)})
    assert len(set.union(*ports)) == 2, ports


@pytest.fixture
def network() -> Iterator[Network]:
    network = Network("abcd")
    yield network
    network.remove()


@in_namespaces
@pytest.mark.parametrize(("failures", "status"), mostly_full([(4, 9), (3, 0)]))
def test_fault_tolerant(network: Network, tmp_path: Path, failures: int, status: int):
    """It tolerates three failures, of any node, and a fourth is everybody's status."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys, time\n"
        "rank, size = os.environ['RANK'], os.environ['WORLD_SIZE']\n"
        "attempt = int(os.environ['TORCHELASTIC_RESTART_COUNT'])\n"
        f"open(f'{tmp_path}/{{attempt}}-{{rank}}-of-{{size}}', 'w')\n"
        f"sys.exit(9) if attempt < {failures} and int(rank) == attempt else None\n"
        f"time.sleep(600 if attempt < {failures} else 0)\n"
    )
    variables = {
        "NUM_NODES": "2",
        "NUM_TRAINERS": "2",
        "JOB_ID": "a-job",
        "HOST_NODE_ADDR": network.address("a"),  # without a port: 29400
    }
    command = line(FIXED, str(script))
    nodes = {
        host: start(command, network.within(host, f"node{host}"), **variables) for host in "ab"
    }
    found = ends(nodes)
    assert [one[0] for one in found.values()] == [status, status], found
    began = {path.name for path in tmp_path.glob("*-of-*")}
    assert began >= {f"{n}-{n}-of-4" for n in range(4)}, found
    assert began <= {f"{attempt}-{rank}-of-4" for attempt in range(4) for rank in range(4)}


@in_namespaces
@pytest.mark.full
def test_elastic(network: Network, tmp_path: Path):
    """A node is lost and comes again: four nodes, three, and four."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, time\n"
        "told = os.environ\n"
        "count, rank = told['TORCHELASTIC_RESTART_COUNT'], told['RANK']\n"
        f"open(f'{tmp_path}/{{count}}-{{rank}}', 'w').write(told['WORLD_SIZE'])\n"
        f"while not os.path.exists('{tmp_path}/end'): time.sleep(0.1)\n"
    )
    variables = {
        "NUM_TRAINERS": "1",
        "JOB_ID": "a-job",
        "HOST_NODE_ADDR": f"{network.address('a')}:29411",
    }

    def begin(host: str) -> subprocess.Popen[str]:
        within = network.within(host, f"node{host}")
        return start(line(ELASTIC, str(script)), within, **variables)

    def wait_for(attempt: int, count: int) -> None:
        paths = [tmp_path / f"{attempt}-{rank}" for rank in range(count)]
        what = f"attempt {attempt} of {count}"
        until(lambda: all(p.exists() and p.read_text() == str(count) for p in paths), what)

    nodes = {host: begin(host) for host in "abcd"}
    wait_for(0, 4)
    network.kill("d")
    lost = nodes.pop("d")
    wait_for(1, 3)
    nodes["d"] = begin("d")
    wait_for(2, 4)
    (tmp_path / "end").touch()
    found = ends(nodes)
    assert {one[0] for one in found.values()} == {0}, found
    assert lost.wait(PATIENCE_S) != 0
    lost.communicate()
