"""What a flag is: a field of a record, a parser of its text, and a line of help."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from dataclasses import field
from typing import Any, NoReturn

from .errors import RefusedError, refuse, speaks

LARGEST = 2**31 - 1
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def flag(default: Any, parse: Callable[[str], Any], meta: str, text: str) -> Any:
    """A field that is a flag as well; its ``text`` may name the default as %(default)s."""
    return field(default=default, metadata={"type": parse, "metavar": meta, "help": text})


def switch(text: str) -> Any:
    """A field that is false until its flag is given; --no-... takes it back."""
    return field(default=False, metadata={"action": argparse.BooleanOptionalAction, "help": text})


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
    value = not_negative(text, "a number above 0 such as 3e-3")
    if value == 0:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be; type a number above 0 such as 3e-3")
    return value


def not_negative(text: str, wanted: str = "0 or a number above it") -> float:
    """A finite number, zero or above."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (value >= 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be; type {wanted}")
    return value


def betas(text: str) -> str:
    """Two numbers that ``pair`` reads; as text, so that a saved configuration has them."""
    try:
        low = all(0 <= beta < 1 for beta in pair(text))
    except ValueError:
        low = False
    if not low:
        raise argparse.ArgumentTypeError(
            f"{text!r} cannot be; type two numbers from 0 to below 1, such as 0.9,0.95"
        )
    return text


def pair(text: str) -> tuple[float, float]:
    """The numbers in "0.9,0.95"."""
    first, second = map(float, text.split(","))
    return first, second


def goal(text: str) -> str:
    """A measure and which way it is better, which ``aim`` reads; alone only "loss" says that."""
    name, _, way = text.rpartition(":")
    if text != "loss" and (not name or way not in ("min", "max")):
        raise argparse.ArgumentTypeError(
            f"{text!r} does not say which way is better; type {text or 'accuracy'}:max or :min"
        )
    return text


def aim(text: str) -> tuple[str, bool]:
    """The measure in "accuracy:max", and whether more of it is better."""
    name, _, way = text.rpartition(":")
    return name or text, way == "max"


def splits(text: str) -> str:
    """Names of splits, without spaces or repetitions, joined by commas."""
    names = text.split(",")
    if not all(name.isidentifier() for name in names) or len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(
            f"{text!r} cannot be; type names of splits, such as train,validation,test"
        )
    return text


def one_of(*words: str) -> Callable[[str], str]:
    """A parser that takes one of a few words."""

    def parse(text: str) -> str:
        if text not in words:
            known = f"{', '.join(words[:-1])} or {words[-1]}"
            raise argparse.ArgumentTypeError(f"{text!r} cannot be; type {known}")
        return text

    return parse


def path(text: str) -> str:
    """Any path but the empty one, which a shell makes of a variable that is not set."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty; type the name of a directory")
    return text


def word(text: str) -> str:
    """Any text but the empty one."""
    if not text:
        raise argparse.ArgumentTypeError("the text is empty")
    return text


def duration(text: str) -> str:
    """A time that ``seconds`` reads; it stays as typed, so that a saved configuration has it."""
    try:
        seconds(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} cannot be; type 90s, 45m, 12h, 2d, HH:MM:SS or D-HH:MM:SS"
        ) from None
    return text


def seconds(text: str) -> float:
    """Seconds in "90s", "45m", "12h", "2d", or Slurm's "HH:MM:SS" and "D-HH:MM:SS" (sbatch(1)).

    A bare number is refused: Slurm would take it for minutes, and most people for seconds.
    """
    if short := re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text):
        return float(short[1]) * SECONDS[short[2]]
    if long := re.fullmatch(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)", text):
        days, hours, minutes, rest = (int(part or 0) for part in long.groups())
        return float(((days * 24 + hours) * 60 + minutes) * 60 + rest)
    raise ValueError(text)


class Parser(argparse.ArgumentParser):
    """Every worker parses the same line, and one of them speaks."""

    origin = ""  # the file that the arguments are from, where they are not typed

    def print_help(self, file: Any = None) -> None:
        if speaks():
            super().print_help(file)

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments"):
            message += "; type --help for the list of flags"
        refuse(RefusedError(self.origin + message, shared=True))
