"""Who a worker is, from the environment, and the device it gets."""

from pathlib import Path

import pytest

from spawnlaunch.train.errors import RefusedError
from tests.support.late import Late
from tests.train.ranks import run

torch = Late("torch")
distributed = Late("spawnlaunch.train.distributed")
pytestmark = pytest.mark.full
LAUNCHED = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "node0",
    "MASTER_PORT": "2900",
}


def test_a_launched_worker_is_who_the_launcher_says() -> None:
    assert distributed.read_world(LAUNCHED) == distributed.World(
        rank=5, size=8, local_rank=1, local_size=8
    )


def test_a_process_that_nobody_launched_is_alone() -> None:
    assert distributed.read_world({"MASTER_ADDR": "left over"}) == distributed.World(
        rank=0, size=1, local_rank=0
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"WORLD_SIZE": None}, "numbers: 'WORLD_SIZE'"),
        ({"RANK": None}, "numbers: 'RANK'"),
        ({"LOCAL_RANK": "one"}, "'one'"),
        ({"RANK": "8"}, "RANK is 8 and WORLD_SIZE is 8"),
    ],
)
def test_an_incomplete_environment_is_refused(change: dict[str, str | None], said: str) -> None:
    environ = {name: value for name, value in (LAUNCHED | change).items() if value is not None}
    with pytest.raises(RefusedError, match=said):
        distributed.read_world(environ)


@pytest.mark.parametrize(
    ("wanted", "visible", "device"),
    [
        ("auto", 0, "cpu"),
        ("cpu", 4, "cpu"),
        ("auto", 4, "cuda:3"),
        ("cuda", 4, "cuda:3"),
        ("auto", 1, "cuda:0"),
    ],
)
def test_local_rank_3_gets_its_device(wanted: str, visible: int, device: str) -> None:
    assert str(distributed.pick_device(wanted, distributed.World(3, 4, 3), visible)) == device


@pytest.mark.parametrize(("wanted", "count"), [("cuda", 0), ("auto", 2)])
@pytest.mark.parametrize(("rocm", "maker"), [(None, "CUDA"), ("6.4.43482", "ROCm")])
def test_a_worker_without_a_device_is_refused(
    wanted: str, count: int, rocm: str | None, maker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.version, "hip", rocm)
    with pytest.raises(RefusedError, match=f"{count} {maker} devices are visible.*--device cpu"):
        distributed.pick_device(wanted, distributed.World(3, 4, 3), count)


def test_a_rank_refuses_its_own_place_itself(tmp_path: Path) -> None:
    ranks = run(2, cwd=tmp_path, WORLD_SIZE="1", LOCAL_RANK="")
    assert [rank.status for rank in ranks] == [2, 2]
    assert ranks[0].err.startswith("train: error: RANK, WORLD_SIZE and LOCAL_RANK go")
    assert ranks[1].err.startswith("train: error: rank 1: RANK, WORLD_SIZE and LOCAL_RANK go")
    assert ranks[1].err.count("\n") == 1
