"""The imports obey the table of rooms in docs/architecture.md."""

import re

import pytest

from tests.counts import rooms

# Where torch may be imported: in workers, and in what is started as one.
WITH_TORCH = ("spawnlaunch.bench", "spawnlaunch.check", "spawnlaunch.train", "spawnlaunch.run")


@pytest.fixture(scope="module")
def arrows() -> list[rooms.Arrow]:
    return rooms.arrows()


@pytest.fixture(scope="module")
def ours(arrows: list[rooms.Arrow]) -> list[rooms.Arrow]:
    return [arrow for arrow in arrows if rooms.is_ours(arrow.imported)]


def test_no_room_imports_a_later_one(ours: list[rooms.Arrow]):
    assert list(map(str, rooms.upwards(ours))) == []


def test_every_file_is_in_a_room():
    rooms_there = {rooms.room(module) for module in rooms.modules()}
    assert rooms_there == set(rooms.order())


def test_the_files_that_the_page_names_are_there():
    named = set(
        re.findall(r"`((?:spawnlaunch/|tests/|\w+/)*\w+(?:\.py|/))`", rooms.PAGE.read_text())
    )
    assert named
    roots = (rooms.PACKAGE, rooms.PACKAGE.parent)
    assert [name for name in named if not any((root / name).exists() for root in roots)] == []


def test_no_files_import_each_other_in_a_circle(ours: list[rooms.Arrow]):
    assert rooms.circles(ours) == []


def test_the_training_loop_imports_nothing_of_the_launcher(ours: list[rooms.Arrow]):
    of_the_loop = [arrow for arrow in ours if rooms.room(arrow.importer) == "train"]
    assert [str(arrow) for arrow in of_the_loop if rooms.room(arrow.imported) != "train"] == []


def test_only_what_runs_in_workers_imports_torch(arrows: list[rooms.Arrow]):
    importers = {arrow.importer for arrow in arrows if arrow.imported.split(".")[0] == "torch"}
    assert [name for name in importers if not name.startswith(WITH_TORCH)] == []
    assert [n for n in importers if n.startswith("spawnlaunch.run") and "preload" not in n] == []


@pytest.mark.parametrize(
    ("importer", "imported"), [("walk", "run.tree"), ("node.cpus", "binding"), ("errors", "cli")]
)
def test_an_arrow_upwards_would_be_seen(importer: str, imported: str):
    importer, imported = f"spawnlaunch.{importer}", f"spawnlaunch.{imported}"
    there = [rooms.Arrow(importer, imported, 1, True), rooms.Arrow(imported, importer, 1, True)]
    assert len(rooms.upwards(there)) == 1
    assert rooms.circles(there) == [sorted([importer, imported])]
