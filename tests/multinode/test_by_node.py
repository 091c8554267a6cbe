"""What differs by node as torchrun has it, and what must not: roles, and a static endpoint."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.launching import LAUNCHER, clean_environ
from tests.support.matrix import mostly_full
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port

NODES = (("ps", 2), ("trainer", 3), ("ps", 1))  # role and workers, by node rank
NAMES = ("RANK", "ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT")
EXPECTED = [
    ("0", "ps", "0", "3"), ("1", "ps", "1", "3"),
    ("2", "trainer", "0", "3"), ("3", "trainer", "1", "3"), ("4", "trainer", "2", "3"),
    ("5", "ps", "2", "3"),
]  # fmt: skip
SAY = f"""
import json, os, sys, time
told = [os.environ[name] for name in {NAMES}]
print(json.dumps(told), flush=True)
if told[-1] == "0":  # the last fails, once all have said it
    open(f"{{sys.argv[1]}}/{{told[0]}}", "w").close()
    while told[0] != "5" or len(os.listdir(sys.argv[1])) < 6:
        time.sleep(0.05)
    sys.exit(1)
"""
OURS = (*LAUNCHER, "--quiet")


def told(directory: Path, *words: str) -> list[list[str]]:
    """What the workers of all nodes have, by rank and attempt."""
    script = directory / "say.py"
    script.write_text(SAY)
    place = ("--rdzv-backend=static", f"--rdzv-endpoint=127.0.0.1:{free_port()}")
    processes = [
        subprocess.Popen(
            [*OURS, *place, "--nnodes=3", f"--node-rank={n}", f"--role={role}",
             f"--nproc-per-node={nproc}", "--max-restarts=1", str(script), *words],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
            env=clean_environ(GLOO_SOCKET_IFNAME="lo", NCCL_SOCKET_IFNAME="lo"),
        )
        for n, (role, nproc) in enumerate(NODES)
    ]  # fmt: skip
    said = [process.communicate(timeout=PATIENCE_S) for process in processes]
    assert [process.returncode for process in processes] == [0] * 3, said
    texts = [text for out, _ in said for text in re.findall(r"\[.*?\]", out)]
    return sorted(json.loads(text) for text in texts)


@pytest.mark.parametrize("backend", mostly_full([["--rdzv-backend=static"], []]))
def test_the_port_of_a_static_endpoint_is_where_rank_0_listens(
    backend: list[str], tmp_path: Path
) -> None:
    """On all nodes, which may have several names for its host."""
    script, port = tmp_path / "say.py", free_port()
    script.write_text("import os\nprint([os.environ[f'MASTER_{n}'] for n in ('ADDR', 'PORT')])")
    common = (*OURS, *backend, "--nnodes=2", "--nproc-per-node=1")
    processes = [
        subprocess.Popen(
            [*common, f"--node-rank={n}", f"--rdzv-endpoint={host}:{port}", str(script)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
            env=clean_environ(GLOO_SOCKET_IFNAME="lo", NCCL_SOCKET_IFNAME="lo"),
        )
        for n, host in enumerate(("127.0.0.1", "localhost"))
    ]  # fmt: skip
    said = [process.communicate(timeout=PATIENCE_S) for process in processes]
    for out, err in said:
        assert f"'{port}']" in out, err


def test_ranks_count_within_a_role_by_node_rank_and_stay_in_a_restart(tmp_path: Path) -> None:
    (tmp_path / "said").mkdir()
    found = told(tmp_path, f"{tmp_path}/said")
    for attempt in "01":
        assert [tuple(one[:4]) for one in found if one[4] == attempt] == EXPECTED
