"""SECURITY.md has each port and socket that a launch opens."""

import re
from pathlib import Path

import pytest

from tests.support.launching import ROOT
from tests.support.processes import NET, everybody, sockets
from tests.support.watching import launched

TABLE = (ROOT / "SECURITY.md").read_text().partition("## Ports and sockets")[2].partition("##")[0]
CONNECTED = """
import time, torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(2))
print("ready", flush=True)
time.sleep(3600)
"""


@pytest.mark.skipif(not Path("/proc/net/unix").exists(), reason="needs /proc")
def test_the_table_has_each_port_and_socket_of_a_launch(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(CONNECTED)
    flags = ("--nproc", 2, "--record", tmp_path, "--hang-timeout", 1000, "--prefix=never")
    with launched(*flags, tmp_path / "script.py", directory=tmp_path) as launch:
        launch.read_until(2)
        found = {pid: sockets(pid) for pid in everybody(launch.pid)}
        words = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in found}
    names = {name for each in found.values() for name in each - {*NET}}
    told = set(re.findall(r"`(@spawnlaunch-[a-z]+)-", TABLE))
    assert names
    assert {name.rstrip("0123456789-") for name in names} <= told
    assert {b"-u" in words[pid].split(b"\0") for pid in found if found[pid] & {*NET}} == {True}
