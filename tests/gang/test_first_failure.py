"""Of failures on several nodes the first is named, though its news come later."""

from __future__ import annotations

import json

from tests.gang.launchers import Launchers
from tests.support.dying import COMMON

SEGV = 139
# Rank 1 dies slowly, and rank 0, which has the hub, ends as soon as it sees that.
DIES_SLOWLY = """
if rank == 1:
    memory = slow_to_die()
    tell("pid")
    os.kill(os.getpid(), signal.SIGSEGV)
wait_until_it_dies(told("pid"))
os._exit(7)
"""


def test_one_that_crashes_and_dies_slowly_is_the_first_though_others_end_sooner(
    launchers: Launchers,
) -> None:
    directory = launchers.directory
    (directory / "script.py").write_text(COMMON + DIES_SLOWLY)
    for rank in range(2):
        conf = ("--rdzv-conf", f"is_host={int(rank == 0)}")
        flags = ("--nnodes", 2, "--nproc", 1, "--node-rank", rank, *conf)
        result = ("--result", directory / "result.json")
        launchers.start(f"{rank}", *flags, *result, directory / "script.py", HERE=str(directory))
    assert launchers.statuses() == {"0": SEGV, "1": SEGV}
    assert "failed first: rank 1 " in launchers.said("0")
    record = json.loads((directory / "result.json").read_text())
    assert (record["first_failure"], record["status"]) == (1, SEGV)
