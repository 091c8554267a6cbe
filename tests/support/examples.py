"""How many cases a property is tried with: few in `make test`, more in `make full`, most at night.

The same cases are drawn on every machine.
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support import matrix

_SLOW_TO_DRAW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


def examples(few: int, many: int) -> settings:
    """Settings of a property that is tried with a few cases, and with many in `make full`."""
    return _settings(many if matrix.are_collected else few)


def nightly(property: Callable[[], Any], count: int = 20_000) -> Any:
    """A test of the property, as `given` has made it, that tries so many cases at night."""
    return pytest.mark.nightly(_settings(count)(property))


def _settings(count: int) -> settings:
    return settings(
        max_examples=count, derandomize=True, database=None, suppress_health_check=_SLOW_TO_DRAW
    )
