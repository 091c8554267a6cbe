"""Of failures on several nodes the first is named, though its news come later."""

from __future__ import annotations

import json

import pytest

from tests.gang.launchers import Launchers
from tests.gang.relay import relay
from tests.support.dying import COMMON
from tests.support.patience import PATIENCE_S

SEGV, ABRT = 139, 134
WAY_S, AFTER_S = 1.8, 1.6  # longer than a launcher may be late

# Rank 1 is on the node that is far from the hub.
FAR_IS_FIRST = f"""
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
if rank == 1:
    tell("pid")
    {{first}}
wait_until_it_dies(told("pid"))
time.sleep({AFTER_S})
{{then}}
"""
DIES_SLOWLY = """
if rank == 1:
    memory = slow_to_die()
    tell("pid")
    os.kill(os.getpid(), signal.SIGSEGV)
wait_until_it_dies(told("pid"))
os._exit(7)
"""


def run(some: Launchers, script: str, way_s: float) -> dict[str, int]:
    """The launchers' statuses; the near one has the hub, and rank 0."""
    program = some.directory / "script.py"
    program.write_text(COMMON + script)
    hub = int(some.endpoint.rpartition(":")[2])
    here = {"HERE": str(some.directory)}
    words = ("--nnodes", 2, "--nproc", 1, "--result", some.directory / "result.json")
    with relay(hub, way_s) as way:
        is_host = ("--rdzv-conf", "is_host=1")
        some.start("near", *words, "--node-rank", 0, *is_host, program, **here)
        is_host = ("--rdzv-conf", "is_host=0")
        some.start("far", *words, "--node-rank", 1, *is_host, program, through=way.port, **here)
        return {name: p.wait(PATIENCE_S) for name, p in some.processes.items()}


@pytest.mark.full  # it waits for the way there and back, many times
@pytest.mark.parametrize(
    ("first", "then", "status"),
    [
        ("os.abort()", "os._exit(7)", ABRT),
        ("os._exit(7)", "os.abort()", 7),
        ("os._exit(7)", "os.kill(os.getpid(), signal.SIGSEGV)", 7),
    ],
)
def test_the_first_failure_is_that_of_the_node_that_is_far_away(
    first: str, then: str, status: int, launchers: Launchers
) -> None:
    script = FAR_IS_FIRST.format(first=first, then=then)
    assert run(launchers, script, WAY_S) == {"near": status, "far": status}
    assert "failed first: rank 1 " in launchers.said("near")
    record = json.loads((launchers.directory / "result.json").read_text())
    assert (record["first_failure"], record["status"]) == (1, status)


def test_one_that_crashes_and_dies_slowly_is_the_first_though_others_end_sooner(
    launchers: Launchers,
) -> None:
    assert run(launchers, DIES_SLOWLY, 0.0) == {"near": SEGV, "far": SEGV}
    assert "failed first: rank 1 " in launchers.said("near")
