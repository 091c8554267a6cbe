"""--timeout goes on while no launcher can run, as the limit of a manager does."""

import os
import signal
import sys
import time

import pytest

from spawnlaunch.failures import TIMED_OUT
from tests.gang.launchers import Launchers
from tests.support.launching import WORKERS
from tests.support.processes import everybody, until

LIMIT_S = 22.0  # of which the hub's own clock, which stands, would have half left


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="there is a guard on Linux only")
def test_the_time_of_a_launch_goes_on_while_all_are_stopped(launchers: Launchers):
    """Or workers of so long a launch would go on when it is continued, and end well."""
    go = launchers.directory / "go"
    for name in "ab":
        launchers.start(name, "--nnodes", 2, "--timeout", LIMIT_S, WORKERS / "patient.py", go)
    for name in "ab":
        until(lambda n=name: "ready" in (launchers.directory / f"{n}.out").read_text(), "it runs")
    pids = [pid for one in launchers.processes.values() for pid in everybody(one.pid)]
    for pid in reversed(pids):
        os.kill(pid, signal.SIGSTOP)
    time.sleep(LIMIT_S)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    time.sleep(LIMIT_S / 4)
    go.touch()
    assert launchers.statuses() == dict.fromkeys("ab", TIMED_OUT), launchers.said("a")
    assert "the time of the launch is over" in launchers.said("a")
