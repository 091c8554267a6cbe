"""The flags: one frozen record whose fields they are, and the page that ``--help`` prints."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NoReturn

from .errors import RefusedError, refuse, speaks

LARGEST = 2**31 - 1


def whole(low: int, high: int = LARGEST, multiple_of: int = 1) -> Callable[[str], int]:
    """A parser for whole numbers from ``low`` to ``high``, both allowed."""
    wanted = f"a whole number from {low} to {high}" if high < LARGEST else f"{low} or more"
    if multiple_of > 1:
        wanted = f"a multiple of {multiple_of} from {low} to {high}"

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high or value % multiple_of:
            raise argparse.ArgumentTypeError(f"{text!r} cannot be; type {wanted}")
        return value

    return parse


def positive(text: str) -> float:
    """A finite number above zero."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (value > 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be; type a number above 0 such as 3e-3")
    return value


def device_type(text: str) -> str:
    """One of the device types the loop knows, or "auto"."""
    if text not in ("auto", "cpu", "cuda"):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be; type auto, cpu or cuda")
    return text


def output_directory(text: str) -> str:
    """Any path but the empty one, which a shell makes of a variable that is not set."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty; type the name of a directory")
    return text


def flag(default: Any, parse: Callable[[str], Any], meta: str, text: str) -> Any:
    """A field that is a flag as well; its ``text`` may name the default as %(default)s."""
    return field(default=default, metadata={"type": parse, "metavar": meta, "help": text})


@dataclass(frozen=True)
class Config:
    """What a run was asked to do; the field ``batch_size`` is the flag ``--batch-size``."""

    steps: int = flag(350, whole(1), "N", "optimizer steps (%(default)s)")
    batch_size: int = flag(8, whole(1), "N", "samples per step of EACH worker (%(default)s)")
    lr: float = flag(4e-3, positive, "RATE", "highest learning rate (%(default)s)")
    warmup: int = flag(50, whole(0), "N", "steps in which the learning rate rises (%(default)s)")
    seed: int = flag(0, whole(0), "N", "decides initial weights and sample order (%(default)s)")
    context: int = flag(128, whole(1, 4096), "N", "bytes the model looks at (%(default)s)")
    layers: int = flag(5, whole(1, 1000), "N", "blocks of the model (%(default)s)")
    width: int = flag(128, whole(32, 8192, 32), "N", "a multiple of 32 (%(default)s)")
    device: str = flag("auto", device_type, "NAME", "auto, cpu or cuda (%(default)s)")
    log_every: int = flag(25, whole(1), "N", "steps between two lines of metrics (%(default)s)")
    eval_every: int = flag(
        175, whole(0), "N", "steps between two validations, 0: at the end only (%(default)s)"
    )
    out: str | None = flag(
        None, output_directory, "DIR", "where the run is written (runs/language-<date>-<time>)"
    )
    overwrite: bool = field(
        default=False, metadata={"action": "store_true", "help": "replace the run in --out"}
    )


class Parser(argparse.ArgumentParser):
    """Every worker parses the same line, and one of them speaks."""

    def print_help(self, file: Any = None) -> None:
        if speaks():
            super().print_help(file)

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments"):
            message += "; type --help for the list of flags"
        refuse(RefusedError(message, shared=True))


def parse(arguments: Sequence[str]) -> Config:
    """The configuration that a command line asks for; a bad one exits with status 2."""
    parser = Parser(
        prog="train",
        usage="python -m train [flags]",
        description="Train a small language model on the help texts of Python, with one process "
        "or with many: any launcher that sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and "
        "MASTER_PORT will do. Twice the workers at half the batch size end at the same loss.",
        epilog="The run is metrics.jsonl, one JSON object a line, and checkpoint.pt.",
        allow_abbrev=False,
    )
    for one in fields(Config):
        name = "--" + one.name.replace("_", "-")
        parser.add_argument(name, default=one.default, **one.metadata)
    return Config(**vars(parser.parse_args(arguments)))
