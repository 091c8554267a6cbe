"""Hugging Face models on local data, from a configuration and from a directory."""

import importlib
import json
import pickle
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from spawnlaunch.train.errors import RefusedError
from tests.support.late import Late
from tests.train.ranks import complete, metrics

torch = Late("torch")
rows = Late("spawnlaunch.train.tasks.rows")
language = Late("spawnlaunch.train.tasks.language")
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not find_spec("transformers"), reason="needs transformers"),
]
causal_lm = Late("spawnlaunch.train.tasks.causal_lm")
sequence_classification = Late("spawnlaunch.train.tasks.sequence_classification")
MODEL = json.dumps({"n_layer": 1, "n_embd": 32, "n_head": 2, "n_positions": 64})
FLAGS = ("--device", "cpu", "--length", "32", "--lr", "5e-3", "--warmup", "0", "--log-every", "1")
REVIEWS = [
    {"review": f"film {i}: a {word} one", "stars": stars, "verdict": word}
    for i in range(60)
    for word, stars in (("good", 5), ("bad", 1), ("dull", 2))
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same reviews in every form."""
    import datasets

    folder = tmp_path_factory.mktemp("data")
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in REVIEWS))
    lines = [f"{row['review']},{row['stars']},{row['verdict']}\n" for row in REVIEWS]
    (folder / "a.csv").write_text("review,stars,verdict\n" + "".join(lines))
    (folder / "a.txt").write_text("\n\n".join(str(row["review"]) for row in REVIEWS))
    datasets.Dataset.from_list(REVIEWS).save_to_disk(str(folder / "saved"))
    return folder


def test_a_causal_model_learns_from_local_text(data: Path, tmp_path: Path) -> None:
    text = "{review} -> {verdict}"
    flags = ("--task", "causal_lm", "--data", str(data / "a.jsonl"), "--text", text)
    new = ("--model-name", "gpt2", "--model-config", MODEL, "--steps", "15", "--out", "new")
    first, _ = complete(2, *FLAGS, *flags, *new, cwd=tmp_path)
    losses = metrics(tmp_path / "new", "loss")
    assert losses[-1] < losses[0] - 1
    assert "tokens/s" in first.out
    assert " held out (one row in 10)\n" in first.out
    assert "\nrandom weights, of the type gpt2\n23,104 parameters\n" in first.out
    # What was written is fine-tuned further, and begins where it ended.
    old = ("--model-name", "new/model", "--steps", "2", "--out", "tuned")
    first, _ = complete(2, *FLAGS, *flags, *old, cwd=tmp_path)
    assert "\nweights of new/model\n" in first.out
    assert metrics(tmp_path / "tuned", "loss")[0] < losses[0] - 1
    # Activations that are computed again change no loss.
    again = ("--checkpoint-activations", "--out", "again")
    complete(2, *FLAGS, *flags, *old, *again, cwd=tmp_path)
    tuned, again_losses = (metrics(tmp_path / out, "loss") for out in ("tuned", "again"))
    assert again_losses == pytest.approx(tuned)
    # And it is evaluated as it is, and has the loss that it ended with.
    old = ("--model-name", "new/model", "--eval-only", "--out", "evaluated")
    complete(2, *FLAGS, *flags, *old, cwd=tmp_path)
    evaluation = json.loads((tmp_path / "evaluated/evaluation.json").read_text())
    best = min(metrics(tmp_path / "new", "validation_loss"))
    assert evaluation["validation"]["loss"] == pytest.approx(best, abs=1e-4)


def test_a_classifier_tells_good_reviews_from_bad(data: Path, tmp_path: Path) -> None:
    flags = ("--task", "sequence_classification", "--data", str(data / "saved"), "--text", "review")
    more = ("--label", "stars", "--model-config", MODEL, "--steps", "40", "--out", "here")
    first, _ = complete(2, *FLAGS, *flags, *more, cwd=tmp_path)
    # It may be tested later, with data that it was not started with.
    test = ("--resume", "auto", "--eval-only", "--test", str(data / "a.csv"))
    complete(1, *FLAGS, *flags, *more, *test, "--eval-splits", "test", cwd=tmp_path)
    assert "test" in json.loads((tmp_path / "here/evaluation.json").read_text())
    assert metrics(tmp_path / "here", "accuracy")[-1] > 0.6
    assert "class  precision  recall     F1  samples\n1 " in first.out


def ready(directory: Path, **options: Any) -> Any:
    """A task of these options, whose data are prepared."""
    task = causal_lm.CausalLM(**options)
    task.prepare(directory)
    task.prepared(directory)
    task.dataset("train")
    return task


def refused(data: Path, tmp_path: Path, /, **change: str) -> str:
    """Why a task of these options, and of others that are well, cannot be prepared."""
    options = {"data": str(data / "a.csv"), "text": "review", "model_config": MODEL, "length": 32}
    with pytest.raises(RefusedError) as refusal:
        ready(tmp_path, **(options | change)).model()
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 500
    return str(refusal.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"text": "body"}, "a.csv has no column 'body'; the columns are 'review', 's"),
        (
            {"model_config": '{"n_positions": 16}'},
            "--length is 32, and gpt2 takes 16 tokens at most; use --length 16",
        ),
        ({"model_name": "gpt9"}, "--model-name: gpt9 is neither a local directory with a "),
        (
            {"model_config": '{"nlayers": 2, "hiden_size": 32}'},
            "--model-config: the configuration of gpt2 has no hiden_size, nlayers; it has ",
        ),
        ({"model_config": '{"n_layer": "a"}'}, "Field 'n_layer' expected int, got str"),
        (
            {"model_name": "openai-community/gpt2"},
            "run hf download openai-community/gpt2 --local-dir gpt2, then --model-name gpt2",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    data: Path, tmp_path: Path, change: dict[str, str], said: str
) -> None:
    assert said in refused(data, tmp_path, **change)


def test_too_few_rows_are_refused(data: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("one\ntwo\n")
    said = refused(data, tmp_path, data=str(tmp_path / "lines.txt"), text="text")
    assert "leaves no rows for train; put an empty line between" in said


def prepared(tmp_path: Path, data: Path, **flags: str) -> Any:
    return ready(
        tmp_path, data=str(data), model_name="gpt2", model_config=MODEL, text="review", **flags
    )


def test_the_first_line_says_where_the_held_out_rows_come_from(data: Path, tmp_path: Path) -> None:
    import datasets

    some = datasets.Dataset.from_list(REVIEWS)
    datasets.DatasetDict(train=some, test=some).save_to_disk(str(tmp_path / "two"))
    task = prepared(tmp_path, tmp_path / "two")
    assert "(its split test)" in task.describe()
    with pytest.raises(RefusedError, match="no split 'test'; use some of train, validation"):
        task.dataset("test")
    task = prepared(tmp_path, tmp_path / "two", validation=str(data / "a.csv"))
    assert f" tokens held out (of {data}/a.csv)" in task.describe()
    assert len(task.dataset("test")) > 0
    task = prepared(tmp_path, data / "a.csv")
    assert "(one row in 10)" in task.describe()
    with pytest.raises(RefusedError, match="no split 'test'"):
        task.dataset("test")


def test_prepared_tokens_are_sent_as_the_name_of_their_file(tmp_path: Path) -> None:
    importlib.import_module("spawnlaunch.train.feed")  # which pickles maps so
    (tmp_path / rows.FOLDER).mkdir()
    rows.write(tmp_path, "train", [list(range(100_000))])
    windows = language.Windows(rows.Texts(tmp_path, "train").tokens, 32, stride=32)
    sent = pickle.dumps(windows)
    assert len(sent) < 1000
    assert torch.equal(pickle.loads(sent)[7][1], windows[7][1])
