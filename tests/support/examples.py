"""How many cases a property is tried with: few in make test, more in make full, most at night."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings

from tests.support import matrix


def examples(few: int, many: int) -> settings:
    """Settings of a property that is tried with a few cases, and with many in `make full`."""
    return settings(max_examples=many if matrix.are_collected else few)


def nightly(property: Callable[[], Any], count: int = 20_000) -> Any:
    """A test of the property, as `given` has made it, that tries so many cases at night."""
    return pytest.mark.nightly(settings(max_examples=count)(property))
