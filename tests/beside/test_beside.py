"""Whatever goes wrong, a launch ends no worse here than under torchrun."""

import pytest

from tests.beside.__main__ import WORSE, outcome, verdict
from tests.beside.launching import CASES, SPAWNLAUNCH, TORCHRUN
from tests.gang.namespaces import may_make_namespaces


@pytest.mark.nightly  # torchrun waits, and so does whoever sees it wait
@pytest.mark.parametrize("name", CASES)
def test_a_launch_ends_no_worse_than_under_torchrun(name: str) -> None:
    if "cable" in name and not may_make_namespaces():
        pytest.skip("this machine lets nobody make network namespaces")
    ours = outcome(name, SPAWNLAUNCH)
    if not ours.is_right:
        theirs = outcome(name, TORCHRUN)
        assert verdict(theirs, ours) != WORSE, (theirs, ours)
