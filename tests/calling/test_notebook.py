"""A real Jupyter kernel launches functions of its cells, shows what they print, and stops."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.launching import clean_environ
from tests.support.patience import PATIENCE_S
from tests.support.processes import processes_with

pytestmark = pytest.mark.full
jupyter_client = pytest.importorskip("jupyter_client", reason="pip install ipykernel")
pytest.importorskip("ipykernel", reason="pip install ipykernel")
pytest.importorskip("cloudpickle", reason="pip install cloudpickle")

CELL = """
import os, time, spawnlaunch
factor = 10
def times(x):
    print("printed by", os.environ["RANK"])
    return factor * x + int(os.environ["RANK"])
spawnlaunch.launch(times, 4, nproc=2, quiet=True)
"""
FAILING = """
def fails():
    raise ValueError("of a cell")
spawnlaunch.launch(fails, quiet=True)
"""
SLEEPING = """
def sleeps():
    print("ready", flush=True)
    time.sleep(3600)
spawnlaunch.launch(sleeps, nproc=2, quiet=True)
"""


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Any]:
    """A kernel that has a variable of its own, which all that it starts inherits."""
    manager = jupyter_client.KernelManager(kernel_name="python3")
    manager.start_kernel(
        cwd=str(tmp_path),
        env=clean_environ(MARK=str(tmp_path), IPYTHONDIR=str(tmp_path / "ipython")),
    )
    yield manager
    manager.shutdown_kernel(now=True)


def test_functions_of_cells_are_launched_and_an_interrupt_stops_all_workers(
    kernel: Any, tmp_path: Path
) -> None:
    client = kernel.client()
    client.start_channels()
    client.wait_for_ready(timeout=PATIENCE_S)
    stdout: list[str] = []

    def show(message: dict[str, Any]) -> None:
        """Keep what a cell prints; interrupt it when both of its ranks are ready."""
        if message["msg_type"] == "stream":
            stdout.append(message["content"]["text"])
            if "".join(stdout).count("ready") == 2 and "ready" in stdout[-1]:
                kernel.interrupt_kernel()

    def run(code: str) -> dict[str, Any]:
        """The reply to a cell, which may have an error; what it prints is in `stdout`."""
        stdout.clear()
        done = client.execute_interactive(
            code, timeout=PATIENCE_S, output_hook=show, user_expressions={"last": "_"}
        )
        content: dict[str, Any] = done["content"]
        return content

    shown = run(CELL)
    assert shown["status"] == "ok", shown
    assert shown["user_expressions"]["last"]["data"]["text/plain"] == "[40, 41]"
    lines = sorted("".join(stdout).splitlines())
    assert lines == ["[0] printed by 0", "[1] printed by 1"]

    failed = run(FAILING)
    assert failed["ename"] == "WorkerError"
    assert failed["evalue"].startswith("rank 0: ValueError: of a cell")
    assert 'raise ValueError("of a cell")' in "\n".join(failed["traceback"])  # it is in no file

    before = set(processes_with(f"MARK={tmp_path}"))
    assert run(SLEEPING)["ename"] == "KeyboardInterrupt"
    assert set(processes_with(f"MARK={tmp_path}")) <= before
    assert run("1 + 1")["user_expressions"]["last"]["data"]["text/plain"] == "2"
    client.stop_channels()
