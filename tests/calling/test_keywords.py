"""Keyword arguments become words of a command line."""

from pathlib import Path
from typing import Any

import pytest

from spawnlaunch.api import command_line


@pytest.mark.parametrize(
    ("flag", "word"),
    [
        ({"nproc": 2}, "--nproc=2"),
        ({"nproc_per_node": "gpu"}, "--nproc-per-node=gpu"),
        ({"timeout": 2.5}, "--timeout=2.5"),
        ({"grace": 100.0}, "--grace=100"),
        ({"restart_window": 0.1}, "--restart-window=0.1"),
        ({"no_restart_status": (2, 75)}, "--no-restart-status=2,75"),
        ({"ranks_filter": range(3)}, "--ranks-filter=0,1,2"),
        ({"preload": ["re", "json"]}, "--preload=re,json"),
        ({"log_dir": Path("logs")}, "--log-dir=logs"),
        ({"smt": False}, "--smt=off"),
        ({"smt": True}, "--smt=on"),
        ({"quiet": True}, "--quiet"),
        ({"rdzv_id": ""}, "--rdzv-id="),
        # What says nothing is not typed.
        ({"quiet": False}, ""),
        ({"timeout": None}, ""),
        ({"oversubscribe": None}, ""),
    ],
)
def test_a_value_is_typed_as_on_the_command_line(flag: dict[str, Any], word: str) -> None:
    assert command_line(flag, __file__) == [*filter(None, [word]), __file__]
