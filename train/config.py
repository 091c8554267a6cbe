"""The configuration of a run: one frozen record, with a field for each flag.

A flag is a field, a parser of its text, and a line of help.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import Any, NoReturn

from .errors import prints_messages, refuse, shared_refusal

LARGEST = 2**31 - 1
EPOCH = "epoch"
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def flag(default: Any, parse: Callable[[str], Any], meta: str, text: str) -> Any:
    """Return a field that is a flag as well; its ``text`` may name the default as %(default)s."""
    return field(default=default, metadata={"type": parse, "metavar": meta, "help": text})


def switch(text: str) -> Any:
    """Return a field that is false until its flag is given; --no-... takes it back."""
    return field(default=False, metadata={"action": argparse.BooleanOptionalAction, "help": text})


def checked(text: str, fits: Callable[[str], bool], wanted: str) -> str:
    """Return the text if it ``fits``; refuse one that does not fit, or raises ValueError."""
    with suppress(ValueError):
        if fits(text):
            return text
    raise argparse.ArgumentTypeError(f"{text!r} cannot be; use {wanted}")


def whole(low: int, high: int = LARGEST, multiple_of: int = 1) -> Callable[[str], int]:
    """Return a parser for whole numbers from ``low`` to ``high``, both allowed."""
    wanted = f"a whole number from {low} to {high}" if high < LARGEST else f"{low} or more"
    if multiple_of > 1:
        wanted = f"a multiple of {multiple_of} from {low} to {high}"
    allowed = range(low, high + 1, multiple_of)
    return lambda text: int(checked(text, lambda typed: int(typed) in allowed, wanted))


def positive(text: str) -> float:
    """Read a finite number above zero."""
    wanted = "a number above 0 such as 3e-3"
    return float(checked(text, lambda typed: 0 < float(typed) < math.inf, wanted))


def not_negative(text: str) -> float:
    """Read a finite number, zero or above."""
    wanted = "0 or a number above it"
    return float(checked(text, lambda typed: 0 <= float(typed) < math.inf, wanted))


def betas(text: str) -> str:
    """Check two numbers for ``pair``; they stay text, as a saved configuration has them."""
    wanted = "two numbers from 0 to below 1, such as 0.9,0.95"
    return checked(text, lambda typed: all(0 <= beta < 1 for beta in pair(typed)), wanted)


def pair(text: str) -> tuple[float, float]:
    """Read the numbers in "0.9,0.95"."""
    first, second = map(float, text.split(","))
    return first, second


def every(text: str) -> int | str:
    """Read a number of steps, 0 for never, or "epoch"."""
    return text if text == EPOCH else whole(0)(text)


def goal(text: str) -> str:
    """Check a measure, and the ":max" or ":min" after it that says which way is better."""
    wanted = "loss, or a measure and which way is better, such as accuracy:max or wer:min"
    return checked(text, lambda typed: bool(re.fullmatch(r"loss|.+:(min|max)", typed)), wanted)


def aim(text: str) -> tuple[str, bool]:
    """Read the measure in "accuracy:max", and whether more is better."""
    name, _, way = text.rpartition(":")
    return name or text, way == "max"


def splits(text: str) -> str:
    """Check names of splits, without spaces or repetitions, joined by commas."""
    names = text.split(",")
    apart = all(name.isidentifier() for name in names) and len(set(names)) == len(names)
    return checked(text, lambda _: apart, "names of splits, such as train,validation,test")


def choice(text: str, *words: str) -> Any:
    """Return a field that is one of a few words, by default the first; ``text`` begins its help."""
    known = f"{', '.join(words[:-1])} or {words[-1]} (%(default)s)"
    keywords = {"choices": words, "metavar": "NAME", "help": text + known}
    return field(default=words[0], metadata=keywords)


def word(text: str) -> str:
    """Refuse the empty text, which a shell makes of a variable that is not set."""
    if not text:
        raise argparse.ArgumentTypeError("the text is empty")
    return text


def duration(text: str) -> str:
    """Check a time for ``seconds``; it stays text, as a saved configuration has it."""
    wanted = "90s, 45m, 12h, 2d, HH:MM:SS or D-HH:MM:SS"
    return checked(text, lambda typed: seconds(typed) >= 0, wanted)


def seconds(text: str) -> float:
    """The seconds in "90s", "45m", "12h", "2d", or Slurm's "HH:MM:SS" and "D-HH:MM:SS" (sbatch(1)).

    A bare number is refused: Slurm would take it for minutes, and most people for seconds.
    """
    if short := re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text):
        return float(short[1]) * SECONDS[short[2]]
    if long := re.fullmatch(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)", text):
        days, hours, minutes, rest = (int(part or 0) for part in long.groups())
        return float(((days * 24 + hours) * 60 + minutes) * 60 + rest)
    raise ValueError(text)


class Parser(argparse.ArgumentParser):
    """A parser for a line that all workers parse: rank 0 alone prints help and errors."""

    origin = ""  # the file or class that the arguments are from; "": the command line

    def print_help(self, file: Any = None) -> None:
        if prints_messages():
            super().print_help(file)

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments"):
            message += "; use --help for the list of flags"
        refuse(shared_refusal(self.origin + message))


@dataclass(frozen=True)
class Config:
    """The field ``batch_size`` is the flag ``--batch-size``; a task adds flags in ``options``."""

    task: str = flag(
        "language",
        word,
        "TASK",
        "name, path/to/file.py:Class or package.module:Class (%(default)s)",
    )
    steps: int = flag(350, whole(1), "N", "optimizer steps (%(default)s)")
    epochs: int | None = flag(None, whole(1), "N", "passes over the samples, instead of --steps")
    batch_size: int = flag(8, whole(1), "N", "samples per pass of EACH worker (%(default)s)")
    accumulate: int = flag(1, whole(1), "N", "forward passes per step (%(default)s)")
    global_batch: int | None = flag(
        None, whole(1), "N", "samples per step of ALL workers together, instead of --batch-size"
    )
    global_tokens: int | None = flag(
        None,
        whole(1),
        "N",
        "padded tokens per step of ALL workers together, for a task with lengths()",
    )
    lr: float = flag(4e-3, positive, "RATE", "highest learning rate (%(default)s)")
    schedule: str = choice("how the learning rate falls: ", "cosine", "linear", "constant")
    final_lr: float | None = flag(None, not_negative, "RATE", "rate of the last step (--lr / 20)")
    warmup: int | None = flag(
        None, whole(0), "N", "steps in which the learning rate rises (50, or a seventh of all)"
    )
    betas: str = flag("0.9,0.95", betas, "X,Y", "betas of AdamW (%(default)s)")
    weight_decay: float = flag(0.1, not_negative, "X", "AdamW's, for matrices (%(default)s)")
    clip: float = flag(1.0, not_negative, "X", "largest norm of a gradient, 0: any (%(default)s)")
    seed: int = flag(0, whole(0), "N", "decides initial weights and sample order (%(default)s)")

    device: str = choice("where to compute; cuda stands for ROCm too: ", "auto", "cpu", "cuda")
    precision: str = choice("of forward passes: ", "fp32", "bf16", "fp16")
    tf32: bool = switch("let float32 matrix products use TF32")
    compile: bool = switch("compile the model with torch.compile")
    find_unused: bool = switch("allow parameters that some steps or ranks do not use")
    gradient_dtype: str = choice("what gradients are sent as: ", "fp32", "bf16")
    bucket_mb: int = flag(25, whole(1), "N", "MiB of gradients sent at once (%(default)s)")
    loader_workers: int | None = flag(
        None, whole(0, 1024), "N", "processes that read samples (by the worker's CPUs)"
    )

    log_every: int = flag(25, whole(1), "N", "steps between two lines of metrics (%(default)s)")
    eval_every: int | str = flag(
        175, every, "N", "steps between two validations, or epoch; 0: at the end only (%(default)s)"
    )
    eval_batch_size: int = flag(32, whole(1), "N", "samples per pass of validation (%(default)s)")
    eval_at_start: bool = switch("validate before the first step too")
    eval_only: bool = switch("train nothing: evaluate the weights of --resume or --init")
    eval_splits: str = flag(
        "validation", splits, "A,B", "splits evaluated at the end, or by --eval-only (%(default)s)"
    )
    save_every: int | str = flag(
        175, every, "N", "steps between two checkpoints, or epoch; 0: best and last (%(default)s)"
    )
    best: str = flag(
        "loss", goal, "METRIC", "loss, or METRIC:min or :max of the task's report (%(default)s)"
    )
    patience: int | None = flag(None, whole(1), "N", "end after N validations without a new best")
    keep: int = flag(2, whole(1), "N", "checkpoints kept besides the best (%(default)s)")

    out: str | None = flag(None, word, "DIR", "where to write (runs/<task>-<date>-<time>)")
    overwrite: bool = switch("replace the run in --out")
    resume: str = flag(
        "never", word, "HOW", "auto: go on with --out, never, or a checkpoint's path (%(default)s)"
    )
    init: str | None = flag(None, word, "PATH", "begin with these weights, of a file or a run")
    max_time: str | None = flag(None, duration, "TIME", "save and leave in time: 90m, 12h, 1:30:00")

    tensorboard: bool = switch("write TensorBoard events to OUT/tensorboard")
    wandb: str | None = flag(None, word, "PROJECT", "log to Weights & Biases, one run per rank")
    profile: bool = switch("write a trace of a few steps as OUT/trace-rank<N>.json")

    options: Mapping[str, Any] = field(default_factory=dict)


FLAGS = tuple(each for each in fields(Config) if each.name != "options")


def to_toml(config: Config) -> str:
    """Return the flags and values that --config reads; --overwrite is for one start alone."""
    values = {each.name: getattr(config, each.name) for each in FLAGS} | dict(config.options)
    for name in ("overwrite", "steps" if config.epochs is not None else ""):
        values.pop(name, None)
    # JSON and TOML (toml.io, v1.0.0) write these values in the same way, but for one character.
    texts = {k: json.dumps(v, ensure_ascii=False) for k, v in values.items() if v is not None}
    return "".join(f"{name} = {text}\n".replace("\x7f", "\\u007f") for name, text in texts.items())
