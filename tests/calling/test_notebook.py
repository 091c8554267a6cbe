"""A real Jupyter kernel launches functions of its cells, shows what they print, and stops."""

import queue
import time
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


class Notebook:
    """A kernel, and what its cells have shown."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def start(self, code: str) -> str:
        """Run a cell; the result is the id of its messages."""
        sent: str = self.client.execute(code)
        return sent

    def shown(self, cell: str, until_stream: str = "") -> dict[str, str]:
        """What a cell has shown to its end, or so far that a text is on stdout, by kind."""
        found = dict.fromkeys(("stdout", "stderr", "result", "error", "traceback"), "")
        deadline = time.monotonic() + PATIENCE_S
        while not (until_stream and found["stdout"].count(until_stream) == 2):
            assert time.monotonic() < deadline, found
            try:
                message = self.client.get_iopub_msg(timeout=1)
            except queue.Empty:
                continue
            if message["parent_header"].get("msg_id") != cell:
                continue
            content = message["content"]
            match message["msg_type"]:
                case "stream":
                    found[content["name"]] += content["text"]
                case "execute_result":
                    found["result"] = content["data"]["text/plain"]
                case "error":
                    found["error"] = f"{content['ename']}: {content['evalue']}"
                    found["traceback"] = "\n".join(content["traceback"])
                case "status" if content["execution_state"] == "idle":
                    break
        return found


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
    notebook = Notebook(client)

    shown = notebook.shown(notebook.start(CELL))
    assert (shown["result"], shown["error"]) == ("[40, 41]", ""), shown
    lines = sorted(shown["stdout"].splitlines())
    assert lines == ["[0] printed by 0", "[1] printed by 1"]

    failed = notebook.shown(notebook.start(FAILING))
    assert failed["error"].startswith("WorkerError: rank 0: ValueError: of a cell")
    assert 'raise ValueError("of a cell")' in failed["error"]  # the line, which is in no file

    before = set(processes_with(f"MARK={tmp_path}"))
    cell = notebook.start(SLEEPING)
    notebook.shown(cell, until_stream="ready")
    kernel.interrupt_kernel()
    assert notebook.shown(cell)["error"].startswith("KeyboardInterrupt: ")
    assert set(processes_with(f"MARK={tmp_path}")) <= before
    assert notebook.shown(notebook.start("1 + 1"))["result"] == "2"
    client.stop_channels()
