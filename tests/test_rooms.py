"""The table of files in the docstring of a room names files that the room has."""

import ast
import re
from pathlib import Path

import pytest

from tests.support.launching import PACKAGE

# `attempts   one run ...`, `front, guard   what the user ...`: a row of a table in a docstring.
ROW = re.compile(r"^ *((?:[a-z_]+/?, )*[a-z_]+/?) {2,}\S", re.MULTILINE)
ROOMS = sorted(PACKAGE.glob("*/__init__.py"))


def rows(room: Path) -> list[str]:
    """The files that the table in a room's docstring names."""
    text = ast.get_docstring(ast.parse(room.read_text())) or ""
    return [name.strip("/") for row in ROW.findall(text) for name in row.split(", ")]


def test_rooms_have_a_table_of_their_files() -> None:
    assert {room.parent.name for room in ROOMS if rows(room)} >= {
        "bench",
        "multinode",
        "run",
        "watch",
    }


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.parent.name)
def test_the_files_of_the_table_are_there(room: Path) -> None:
    assert set(rows(room)) <= {path.stem for path in room.parent.iterdir()}
