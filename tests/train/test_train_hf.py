"""Hugging Face models on local data, from a configuration and from a directory."""

import json
import pickle
from pathlib import Path

import pytest
import torch

from spawnlaunch.train.tasks import rows
from spawnlaunch.train.tasks.language import Windows
from tests.train.ranks import complete, metrics, run

pytest.importorskip("transformers")

MODEL = json.dumps({"n_layer": 1, "n_embd": 32, "n_head": 2, "n_positions": 64})
NEO = json.dumps(
    {"num_layers": 1, "hidden_size": 32, "num_heads": 2, "attention_types": [[["global"], 1]]}
)
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


@pytest.mark.parametrize(
    ("file", "text", "model", "changes"),
    [
        ("a.jsonl", "{review} -> {verdict}", "gpt2", MODEL),
        pytest.param("a.txt", "text", "gpt_neo", NEO, marks=pytest.mark.stress),
    ],
)
def test_a_causal_model_learns_from_local_text(
    data: Path, tmp_path: Path, file: str, text: str, model: str, changes: str
) -> None:
    flags = ("--task", "causal_lm", "--data", str(data / file), "--text", text)
    new = ("--model-name", model, "--model-config", changes, "--steps", "15", "--out", model)
    first, _ = complete(2, *FLAGS, *flags, *new, cwd=tmp_path)
    losses = metrics(tmp_path / model, "loss")
    assert losses[-1] < losses[0] - 1
    assert "tokens/s" in first.out
    assert f" held out; random weights, of the type {model}\n" in first.out
    # What was written is fine-tuned further, and begins where it ended.
    old = ("--model-name", f"{model}/model", "--steps", "2", "--out", "tuned")
    first, _ = complete(2, *FLAGS, *flags, *old, cwd=tmp_path)
    assert f" held out; weights of {model}/model\n" in first.out
    assert metrics(tmp_path / "tuned", "loss")[0] < losses[0] - 1


@pytest.mark.parametrize("file", [pytest.param("a.csv", marks=pytest.mark.stress), "saved"])
def test_a_classifier_tells_good_reviews_from_bad(data: Path, tmp_path: Path, file: str) -> None:
    flags = ("--task", "sequence_classification", "--data", str(data / file), "--text", "review")
    more = ("--label", "stars", "--model-config", MODEL, "--steps", "40", "--out", "here")
    first, _ = complete(2, *FLAGS, *flags, *more, cwd=tmp_path)
    assert metrics(tmp_path / "here", "accuracy")[-1] > 0.6
    assert "class  precision  recall     F1  samples\n1 " in first.out


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("--data", "none.csv"), "--data: cannot read none.csv: "),
        (("--text", "body"), "--text: there is no column 'body'; the columns are review, stars"),
        (
            ("--model-config", '{"n_positions": 16}'),
            "--length is 32, and gpt2 takes 16 tokens at most; type --length 16\n",
        ),
        (("--model-name", "gpt9"), "--model-name: gpt9 cannot be: "),
        (("--data", "lines.txt"), "lines.txt leaves no rows for train; put an empty line between"),
        (
            ("--model-name", "openai-community/gpt2"),
            "type hf download openai-community/gpt2 --local-dir gpt2, then --model-name gpt2\n",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_all_ranks(
    data: Path, tmp_path: Path, change: tuple[str, str], said: str
) -> None:
    flags = ("--task", "causal_lm", "--data", str(data / "a.csv"), "--text", "review")
    (tmp_path / "lines.txt").write_text("one\ntwo\n")
    ranks = run(2, *FLAGS, *flags, *change, cwd=tmp_path)
    assert [rank.status for rank in ranks] == [2, 2], ranks
    assert said in ranks[0].err
    assert ranks[0].err.count("\n") == 1
    assert len(ranks[0].err) < 500
    assert ranks[1].err == ""


def test_prepared_tokens_are_sent_as_the_name_of_their_file(tmp_path: Path) -> None:
    (tmp_path / rows.FOLDER).mkdir()
    rows.write_tokens(tmp_path, "train", [list(range(100_000))])
    windows = Windows(rows.read_prepared(tmp_path, "train-tokens"), 32, stride=32)
    sent = pickle.dumps(windows)
    assert len(sent) < 1000
    assert torch.equal(pickle.loads(sent)[7][1], windows[7][1])
