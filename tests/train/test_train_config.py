"""The command line: what it takes, and what it says to what it does not take."""

from dataclasses import fields
from pathlib import Path

import pytest

from spawnlaunch.train.commandline import parse
from spawnlaunch.train.config import Config, to_toml
from tests.train.ranks import run

LANGUAGE = {"context": 128, "layers": 5, "width": 128, "text": None}


def test_no_flag_appears_or_goes_unnoticed() -> None:
    assert [one.name for one in fields(Config)] == [
        *("task", "steps", "epochs", "batch_size", "accumulate", "global_batch", "global_tokens"),
        *("lr", "schedule", "final_lr", "warmup", "betas", "weight_decay", "clip"),
        *("seed", "device", "precision", "tf32", "compile"),
        *("find_unused", "gradient_dtype"),
        *("bucket_mb", "loader_workers", "log_every", "eval_every", "eval_batch_size"),
        *("eval_at_start", "eval_only", "eval_splits", "save_every", "best", "patience"),
        *("keep", "out", "overwrite", "resume", "init", "max_time", "tensorboard"),
        *("wandb", "profile", "options"),
    ]


def test_a_flag_sets_its_field() -> None:
    config, task = parse(["--batch_size", "3", "--lr=2e-3", "--overwrite", "--layers", "2"])
    options = LANGUAGE | {"layers": 2}
    assert config == Config(batch_size=3, lr=0.002, overwrite=True, options=options)
    assert task.__name__ == "Language"


def test_a_saved_configuration_says_the_same_again(tmp_path: Path) -> None:
    words = [
        "--lr",
        "0.1",
        "--out",
        'a "b" \\ \n \x7f \U0001f600 c',
        "--overwrite",
        "--max-time",
        "1:00:00",
    ]
    config, _ = parse([*words, "--width", "64", "--compile"])
    (tmp_path / "config.toml").write_text(to_toml(config))
    again, _ = parse(["--config", str(tmp_path / "config.toml"), "--overwrite"])
    assert again == config


@pytest.mark.parametrize(
    ("typed", "resume"),
    [([], "a"), (["--resume", "auto"], "auto")],
)
def test_how_a_run_began_is_no_flag_of_its_evaluation(
    tmp_path: Path, typed: list[str], resume: str
) -> None:
    config, _ = parse(["--overwrite", "--resume", "a", "--lr", "0.1"])
    (tmp_path / "config.toml").write_text(to_toml(config))
    again, _ = parse(["--config", str(tmp_path / "config.toml"), "--eval-only", *typed])
    assert (again.overwrite, again.resume, again.lr) == (False, resume, 0.1)


def test_a_run_that_was_begun_with_overwrite_is_gone_on_with_by_its_file(tmp_path: Path) -> None:
    config, _ = parse(["--overwrite", "--out", "here"])
    (tmp_path / "config.toml").write_text(to_toml(config))
    again, _ = parse(["--config", str(tmp_path / "config.toml"), "--resume", "auto"])
    assert (again.overwrite, again.resume, again.out) == (False, "auto", "here")


def test_a_typed_flag_wins_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(
        "epochs = 2\nbatch-size = 3\ncompile = true\nlayers = 2\n", "utf-8-sig"
    )
    flags = ["--config", str(tmp_path / "run.toml"), "--steps", "9", "--no-compile"]
    config, _ = parse(flags)
    expected = Config(steps=9, batch_size=3, options=LANGUAGE | {"layers": 2})
    assert config == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("steps = 0", "run.toml: argument --steps: '0' cannot be"),
        ("stepz = 1", "run.toml: unrecognized arguments: --stepz=1"),
        ("steps = [1]", "run.toml: steps is not a number, a text, true or false"),
        ("steps: 1", "run.toml: "),
        ("steps = 9\nepochs = 1", "run.toml: argument --epochs: not allowed with argument --steps"),
    ],
)
def test_a_bad_file_is_refused_by_its_name(
    tmp_path: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.toml").write_text(text)
    with pytest.raises(SystemExit) as left:
        parse(["--config", str(tmp_path / "run.toml")])
    assert left.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "seen", "remedy"),
    [
        (["--steps", "0"], "--steps: '0'", "use 1 or more"),
        (["--steps", "3", "--epochs=2"], "argument --epochs: not allowed with", "--steps"),
        (["--global-batch=3", "--global-tokens=9"], "--global-tokens: not allowed with", ""),
        (["--lr", "abc"], "--lr: 'abc'", "use a number above 0 such as 3e-3"),
        (["--width", "100"], "--width: '100'", "use a multiple of 32 from 32 to 8192"),
        (["--betas", "0.9,1"], "--betas: '0.9,1'", "use two numbers from 0 to below 1"),
        (["--schedule", "step"], "--schedule: invalid choice: 'step'", "linear"),
        (["--best", "f1:up"], "--best: 'f1:up' cannot be", "use loss, or a measure"),
        (["--best", "wer"], "--best: 'wer' cannot be", "such as accuracy:max"),
        (["--out", ""], "--out: the text is empty", ""),
        (["--max-time", "90"], "--max-time: '90'", "use 90s, 45m, 12h, 2d"),
        (["--task", "nope"], "--task: there is no task 'nope'", "use language, classify"),
        (["--task", "no.py:A"], "--task: there is no file", "use the path of a Python file"),
        (["--task", "no.such:A"], "--task: there is no module no", "typed as path/to/file.py"),
        (["--task", "math:A"], "--task: math has no class A", "it has none"),
        (
            ["--step", "5"],
            "unrecognized arguments: --step 5",
            "; use --help",
        ),
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


@pytest.mark.full
def test_help_is_a_page_from_rank_0(tmp_path: Path) -> None:
    ranks = run(2, "--help", cwd=tmp_path)
    assert [rank.status for rank in ranks] == [0, 0]
    assert 40 < ranks[0].out.count("\n") < 120
    assert max(map(len, ranks[0].out.splitlines())) <= 80
    assert ranks[1].out == ""
