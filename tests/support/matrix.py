"""Matrices: the first rows are tried by `make test`, all by `make full`."""

from collections.abc import Iterable
from typing import Any

import pytest

are_collected = True  # the others: tests/conftest.py knows


def mostly_full(rows: Iterable[Any], at_once: int = 1) -> list[Any]:
    """For `parametrize`: those after the first are marked. A row of several values is a tuple.

    Where they are not asked for, they are not even collected, which costs each process time.
    """
    if not are_collected:
        return list(rows)[:at_once]
    return [
        row
        if number < at_once
        else pytest.param(*(row if isinstance(row, tuple) else (row,)), marks=pytest.mark.full)
        for number, row in enumerate(rows)
    ]
