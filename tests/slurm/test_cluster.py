"""The cluster that other tests rely on is a real one, and each test finds it idle."""

import sys

import pytest

from tests.cluster.slurm import Slurm, require_slurm

require_slurm()
pytestmark = pytest.mark.full


def test_a_step_on_two_nodes_sees_two_hosts_that_know_no_others(slurm: Slurm) -> None:
    names = "import socket; print(socket.gethostname(), socket.gethostbyname('node3'), flush=True)"
    resolve = f"{names}; socket.gethostbyname('elsewhere')"
    step = slurm.run(["srun", "-N2", "-n3", "--label", sys.executable, "-c", resolve])
    hosts = ["0: node0 10.11.12.13", "1: node0 10.11.12.13", "2: node1 10.11.12.13"]
    assert sorted(step.stdout.splitlines()) == hosts
    assert step.stderr.count("gaierror:") == 3


def test_what_a_test_leaves_running_is_cancelled_for_the_next(slurm: Slurm) -> None:
    slurm.submit("#!/bin/sh\nsleep 600\n", "--nodes=4")
    slurm.cancel_all()
    assert slurm.idle_nodes() == list(slurm.nodes)
