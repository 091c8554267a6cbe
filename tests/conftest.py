"""Fixtures that tests of several packages share."""

from collections.abc import Iterator

import pytest

from tests.cluster.slurm import Slurm, require_slurm, start


@pytest.fixture(scope="session")
def slurm_session() -> Iterator[Slurm]:
    """The session's cluster; tests take ``slurm``, which hands it on clean."""
    require_slurm()
    cluster = start()
    yield cluster
    cluster.stop()


@pytest.fixture
def slurm(slurm_session: Slurm) -> Iterator[Slurm]:
    """A running Slurm of four nodes: node0 to node3, 8 CPUs and 8 stand-in GPUs each."""
    yield slurm_session
    slurm_session.cancel_all()
