"""Rows of files: any text is read as it is, and what cannot be meant is refused with its row."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spawnlaunch.train.errors import RefusedError
from tests.support.late import Late

rows = Late("spawnlaunch.train.tasks.rows")
needs_datasets = pytest.mark.skipif(not find_spec("datasets"), reason="needs datasets")
pytestmark = pytest.mark.full


def read(file: Path, template: str = "text") -> list[str]:
    """All texts of a file."""
    found, _ = rows.read_splits(str(file), str(file), None)
    return list(found["train"].texts("--text", template))


def refusal(file: Path, template: str = "text") -> str:
    """Why a file cannot be read, in one line."""
    with pytest.raises(RefusedError) as refused:
        read(file, template)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("suffix", [".jsonl", ".ndjson", ".JSON", ".csv", ".tsv", ".CSV"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_row_holds_any_text(tmp_path: Path, suffix: str, encoding: str) -> None:
    file, text = tmp_path / f"rows{suffix}", "one\u2028two\x85three" + 200_000 * "."
    is_json = suffix.lower() not in (".csv", ".tsv")
    row = json.dumps({"text": text}, ensure_ascii=False) if is_json else text
    file.write_text("text\n" * (not is_json) + 20 * f"{row}\n", encoding=encoding)
    assert read(file) == 20 * [text]


@pytest.mark.parametrize("text", ["NA", "null", "007", "2020-01-01", "1e5", "  a", "a\0b", "True"])
@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".tsv"])
def test_a_text_that_looks_like_something_else_stays_a_text(
    tmp_path: Path, suffix: str, text: str
) -> None:
    file = tmp_path / f"rows{suffix}"
    file.write_text(
        json.dumps({"text": text}) if suffix == ".jsonl" else f"text\n{text}\n", encoding="utf-8"
    )
    assert read(file) == [text]


def test_texts_of_csv_may_have_quotes_and_line_breaks(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text('a,text\n1,"one, ""two""\nthree"\n\n2,5" wide\n')
    assert read(file, "{a}: {text}") == ['1: one, "two"\nthree', '2: 5" wide']
    assert rows.read_splits(str(file), None, None)[0]["train"].broken_lines == 1


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "a.csv",
            "text\none, two",
            "row 1 of",
        ),
        (
            "a.csv",
            'text,b\none,1\n"two,2\n3,4',
            "row 2 of",
        ),
        (
            "a.csv",
            'text,b\n"one" two,1',
            "is closed inside a value",
        ),
        ("a.csv", "text,text\n1,2", "two columns 'text'"),
        ("a.csv", "a,text\n1", "row 1 of"),
        ("a.tsv", "text\n1\n  \n", "row 2 of"),
        ("a.json", '[{"text": {}}]', "has dict in the column 'text'; give it a text or a number"),
        ("a.json", '[{"text": [1]}]', "has list in the column 'text'"),
        ("a.json", "[1]", "row 1 of"),
        ("a.jsonl", '{"text": null}', "row 1 of"),
        ("a.jsonl", '{"text": 1}\n{"text": NaN}', "row 2 of"),
        ("a.jsonl", '{"text": ""}', "has nothing in the column"),
        ("a.jsonl", '{"body": 1}', "has no column 'text'; the columns are 'body'"),
        ("a.jsonl", '{"text": 1, "text": 2}', "a name is there twice"),
        ("a.jsonl", '{"text": 1}\n{"text"', "cannot read row 2 of"),
        ("a.csv", "text,x\na,1\ntext,x\nb,2\n", "has the names of the columns again; leave it out"),
        (
            "a.csv",
            "text\na\n\ufeffb\n",
            r"has '\ufeff' in the column 'text', a byte order mark or half a",
        ),
        ("a.csv", "text,x\na,1\n\u200b,2\n", "has nothing in the column 'text'"),
        ("a.jsonl", r'{"text": "\ud800"}', r"has '\ud800' in the column 'text', a"),
        ("a.xlsx", "text", "is not one of .csv, .tsv, .json, .jsonl, .ndjson, .parquet, .txt"),
        ("a.txt", "one", "leaves no rows for train"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    if name == "a.txt":
        with pytest.raises(RefusedError, match=said):
            rows.read_splits(str(tmp_path / name), None, None)
    else:
        assert said in refusal(tmp_path / name)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".txt"])
def test_a_line_that_is_not_utf8_is_named(tmp_path: Path, suffix: str, encoding: str) -> None:
    file = tmp_path / f"rows{suffix}"
    file.write_text("a\nb\né\n", encoding=encoding)
    line = 3 if encoding == "latin-1" else 1
    with pytest.raises(RefusedError, match=f"^--data: line {line} of {file} is not UTF-8: "):
        read(file)


def test_texts_are_between_lines_that_look_empty(tmp_path: Path) -> None:
    file = tmp_path / "rows.txt"
    file.write_bytes(b"one\r\nmore\r\n \r\ntwo\n\t\n\nthree")
    assert read(file) == ["one\nmore", "two", "three"]


@pytest.mark.parametrize("labels", [["good", "good "], ["caf\u00e9", "cafe\u0301"]])
def test_labels_that_look_alike_are_refused(labels: list[str]) -> None:
    with pytest.raises(RefusedError, match=r"^--data: the labels .* and .* look alike; make them"):
        rows.labels_of({"train": labels})


@pytest.mark.parametrize("template", ["{", "{}", "{0}", "{text!x}", "{text:d}"])
def test_what_is_not_a_template_is_refused(tmp_path: Path, template: str) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}')
    assert refusal(tmp_path / "a.jsonl", template).startswith("--text: ")


@needs_datasets
def test_parquet_and_saved_data_sets_keep_the_names_of_their_classes(tmp_path: Path) -> None:
    import datasets

    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])}
    )
    made = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [1, -1]}, features=features)
    made.to_parquet(str(tmp_path / "a.parquet"))
    made.save_to_disk(str(tmp_path / "saved"))
    for name in ("a.parquet", "saved"):
        found = rows.read_splits(str(tmp_path / name), str(tmp_path / "a.parquet"), None)[0][
            "train"
        ]
        assert found.classes == {"label": ["no", "yes"]}
        labels = found.texts("--label", "label")
        assert next(labels) == "yes"
        with pytest.raises(RefusedError, match=r"row 2 of .* has nothing in the column 'label'"):
            next(labels)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1))
def test_whatever_csv_writes_is_read(tmp_path_factory: Any, texts: list[str]) -> None:
    import csv

    file = tmp_path_factory.getbasetemp() / "any.csv"
    texts = [f".{text}" for text in texts]  # blanks alone are nothing
    with file.open("w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows([["text"], *([text] for text in texts)])
    assert read(file) == texts


@pytest.mark.parametrize(
    "labels", [["-1", "9", "10"], ["10", "9", "nan"], ["10", "9", "b"], ["1", "1.0", "2"]]
)
def test_labels_are_ordered_as_numbers_or_as_texts(labels: list[str]) -> None:
    assert rows.labels_of({"train": [*labels[::-1], labels[0]], "validation": []}) == labels
    with pytest.raises(RefusedError, match="the label 'new' is among the held-out answers only"):
        rows.labels_of({"train": labels, "validation": ["new"]})


def test_a_file_written_again_has_another_fingerprint(tmp_path: Path) -> None:
    import os

    file = tmp_path / "below" / "a"
    file.parent.mkdir()
    file.write_text("one")
    before, times = rows.fingerprint(tmp_path), os.stat(file)
    assert rows.fingerprint(tmp_path) == before
    file.unlink()
    file.write_text("two")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert rows.fingerprint(tmp_path) != before
