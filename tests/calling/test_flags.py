"""Keyword arguments become words of a command line."""

from pathlib import Path
from typing import Any

import pytest

from spawnlaunch.calling.flags import words


@pytest.mark.parametrize(
    ("flag", "word"),
    [
        ({"nproc": 2}, "--nproc=2"),
        ({"nproc_per_node": "gpu"}, "--nproc=gpu"),
        ({"timeout": 2.5}, "--timeout=2.5"),
        ({"grace": 100.0}, "--grace=100"),
        ({"restart_window": 1e-7}, "--restart-window=0.0000001"),
        ({"no_restart_status": {75, 2}}, "--no-restart-status=2,75"),
        ({"ranks_filter": range(3)}, "--ranks-filter=0,1,2"),
        ({"preload": ["re", "json"]}, "--preload=re,json"),
        ({"rdzv_conf": {"join_timeout": 900}}, "--rdzv-conf=join_timeout=900"),
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
    assert words(flag) == [*filter(None, [word])]
