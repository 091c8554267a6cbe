"""The process that torchrun is forked from ends with each file of tests."""

from collections.abc import Iterator

import pytest

from tests.torchrun import warm


@pytest.fixture(scope="module", autouse=True)
def _torchrun_ends() -> Iterator[None]:
    yield
    warm.stop()
