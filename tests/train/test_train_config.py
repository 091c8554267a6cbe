"""The command line: what it takes, and what it says to what it does not take."""

from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest
from ranks import run

from train.config import Config, parse


def test_no_flag_appears_or_goes_unnoticed() -> None:
    assert [one.name for one in fields(Config)] == [
        *("steps", "batch_size", "lr", "warmup", "seed"),
        *("context", "layers", "width"),
        *("device", "log_every", "eval_every", "out", "overwrite"),
    ]


def test_no_flags_are_the_defaults() -> None:
    assert parse([]) == Config()


def test_a_flag_sets_its_field() -> None:
    config = parse(["--batch-size", "3", "--lr=2e-3", "--out", "here", "--overwrite"])
    assert config == Config(batch_size=3, lr=0.002, out="here", overwrite=True)


def test_a_configuration_does_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        Config().steps = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    ("flags", "seen", "remedy"),
    [
        (["--steps", "0"], "--steps: '0'", "type 1 or more"),
        (["--steps", "many"], "--steps: 'many'", "type 1 or more"),
        (["--batch-size", "-4"], "--batch-size: '-4'", "type 1 or more"),
        (["--lr", "abc"], "--lr: 'abc'", "type a number above 0 such as 3e-3"),
        (["--lr", "nan"], "--lr: 'nan'", "type a number above 0 such as 3e-3"),
        (["--width", "100"], "--width: '100'", "type a multiple of 32 from 32 to 8192"),
        (["--context", "0"], "--context: '0'", "type a whole number from 1 to 4096"),
        (["--device", "tpu"], "--device: 'tpu'", "type auto, cpu or cuda"),
        (["--out", ""], "--out: the path is empty", "type the name of a directory"),
        (["--step", "5"], "unrecognized arguments: --step 5", "type --help"),
        (["--seed"], "--seed: expected one argument", ""),
    ],
)
def test_a_bad_flag_is_one_line_that_says_what_to_type(
    flags: list[str], seen: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        parse(flags)
    said = capsys.readouterr()
    assert left.value.code == 2
    assert said.out == ""
    assert said.err.startswith("train: error: ")
    assert seen in said.err
    assert remedy in said.err
    assert said.err.count("\n") == 1


def test_all_ranks_refuse_a_bad_flag_and_rank_0_says_so(tmp_path: Path) -> None:
    ranks = run(3, "--steps", "0", cwd=tmp_path)
    assert [rank.status for rank in ranks] == [2, 2, 2]
    assert [rank.err.count("\n") for rank in ranks] == [1, 0, 0]


def test_help_is_a_page_from_rank_0(tmp_path: Path) -> None:
    ranks = run(2, "--help", cwd=tmp_path)
    assert [rank.status for rank in ranks] == [0, 0]
    assert 15 < ranks[0].out.count("\n") < 50
    assert max(map(len, ranks[0].out.splitlines())) <= 80
    assert ranks[1].out == ""
