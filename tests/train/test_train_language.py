"""The language task: where the text is cut, and what a loss counts."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spawnlaunch.train.errors import RefusedError
from tests.support.late import Late

torch = Late("torch")
language = Late("spawnlaunch.train.tasks.language")
pytestmark = pytest.mark.full


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for each other in many small products take minutes on a busy CPU."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def task() -> Any:
    return language.Language(context=32, layers=1, width=32)


def windows(context: int, stride: int) -> Any:
    return language.Windows(torch.arange(100, dtype=torch.uint8), context, stride=stride)


@pytest.mark.parametrize("context", [1, 7, 33, 98, 99, 100, 500])
def test_validation_asks_for_every_byte_but_the_first_once(context: int) -> None:
    found = windows(context, context)
    targets = torch.cat([found[i][1] for i in range(len(found))])
    assert targets[targets != language.NO_TARGET].tolist() == list(range(1, 100))


def test_a_file_of_text_can_be_trained_on_if_it_is_there(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("all work and no play " * 400)
    task = language.Language(text=str(tmp_path / "text.txt"))
    assert task.describe().startswith(f"{tmp_path}/text.txt, sha256 ")
    assert bytes(task.texts["train"][:8].tolist()) == b"all work"
    with pytest.raises(RefusedError, match=r"--text: .*No such file or directory: 'missing.txt'"):
        language.Language(text="missing.txt").describe()


def test_a_target_is_the_byte_after_its_input() -> None:
    inputs, targets = windows(8, 1)[5]
    assert inputs.tolist() == [5, 6, 7, 8, 9, 10, 11, 12]
    assert targets.tolist() == [6, 7, 8, 9, 10, 11, 12, 13]


def test_the_held_out_tenth_is_the_end_of_the_text_and_never_trained_on(task: Any) -> None:
    train, validation, test = (task.texts[name] for name in ("train", "validation", "test"))
    assert bytes(torch.cat((train, validation, test)).tolist()) == language.help_topics()
    assert len(validation) + len(test) == len(language.help_topics()) // 10
    assert len(test) == len(language.help_topics()) // 20
    samples = task.dataset("train")
    _, last = samples[len(samples) - 1]
    assert last[0] == train[-1]
    assert (last[1:] == language.NO_TARGET).all()


def test_the_loss_of_a_model_that_knows_nothing_is_8_bits_per_byte(task: Any) -> None:
    def uniform(ids: torch.Tensor) -> torch.Tensor:
        return torch.zeros(*ids.shape, 256)

    samples = task.dataset("validation")
    last = samples[len(samples) - 1]
    loss_sum, count = task.loss(uniform, (last[0][None], last[1][None]))  # type: ignore[arg-type]
    assert count == (len(task.texts["validation"]) - 1) % 32
    assert math.isclose(float(loss_sum / count), 8, rel_tol=1e-6)


def test_a_model_does_not_see_the_future(task: Any) -> None:
    torch.manual_seed(0)
    model = task.model()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    ids = torch.randint(256, (1, 32))
    other = ids.clone()
    other[0, 20:] = 0
    torch.testing.assert_close(model(ids)[0, :20], model(other)[0, :20])


def test_a_sample_is_decided_by_the_weights_and_the_seed(task: Any) -> None:
    torch.manual_seed(0)
    model = task.model()
    assert task.sample(model, seed=1) == task.sample(model, seed=1)
    assert task.sample(model, seed=1) != task.sample(model, seed=2)
