"""The flags of the bench: --help, and what their values may be."""

import argparse
from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from spawnlaunch.base import commands, errors
from spawnlaunch.bench import arms, workloads
from spawnlaunch.cli import values

NAME = "spawnlaunch bench"
WINDOW_S = 0.3
BUDGET_S = 300.0

DESCRIPTION = """\
Run the same work under several bindings and say which is best here, and how certain that is.
A command of yours after a -- is measured instead: every rank starts it as the launcher would."""

EPILOG = f"""\
arms:
  unpinned    no binding
  control     the same again: what it shows is noise
  far         spread as auto, each rank away from its own device
  {", ".join(arms.BINDS)}
              the policies of --bind

workloads:
{workloads.HELP}

Each workload has its rounds in turn, 40 and then as many again, until the budget is used; train
comes first. The answer is the first line: keep the default, use another arm, or not decided.

exit status: 0; 1 when a rank or the command failed; 2 for wrong use of this command; 3 where
--pick is undecided; 74 when nothing can be printed."""


class _Parser(commands.Parser):
    def error(self, message: str) -> NoReturn:
        hint = "; a command of yours goes after a --" if message.startswith("unrecognized") else ""
        raise errors.FlagsError(message.removeprefix("argument ") + hint)


def parser() -> argparse.ArgumentParser:
    built = _Parser(
        NAME,
        DESCRIPTION,
        usage=f"{NAME} [flags] [-- command args...]",
        epilog=EPILOG,
        allow_abbrev=False,
    )
    _add_measured_work(built)
    _add_method(built)
    _add_output(built)
    return built


def _add_measured_work(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("what is measured").add_argument
    add(
        "--nproc",
        type=_nproc,
        metavar="N",
        help="workers on this machine: N, gpu, cpu or auto (the default: one for each visible "
        "GPU, or for each CPU if there is no GPU); under srun the tasks are the workers; 1,2,4,8 "
        "compares the speed and efficiency of these numbers",
    )
    add(
        "--arms",
        type=_names(arms.NAMES, "arm"),
        metavar="LIST",
        help=f"arms, separated by commas; default {','.join(arms.DEFAULT)}",
    )
    add(
        "--arm",
        type=arms.of_flags,
        action="append",
        default=[],
        metavar="NAME=FLAGS",
        help="one more arm, from the launcher's flags of binding: --arm smt-off='--smt off'; "
        "VARIABLE=VALUE before them is set for its ranks, --loader-workers N is for the loader",
    )
    add(
        "--against",
        metavar="ARM",
        help="arm that the others are compared with; default: auto, or else the first",
    )
    add(
        "--workloads",
        type=_names(tuple(workloads.NAMES), "workload"),
        metavar="LIST",
        help="workloads, separated by commas; default all but "
        + ", ".join(name for name in workloads.NAMES if name not in workloads.DEFAULT),
    )
    add(
        "--launcher",
        type=_names(tuple(arms.LAUNCHERS), "launcher"),
        default=(),
        metavar="LIST",
        help="compare launchers in place of bindings: each starts your command with --nproc N "
        f"workers on this machine; {', '.join(arms.LAUNCHERS)}",
    )
    add(
        "--metric",
        metavar="KEY",
        help="measure the number in your command's last JSON line with this key, in place of "
        "wall time",
    )
    add("--lower-is-better", action="store_true", help="a lower metric is better")


def _add_method(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("how").add_argument
    add(
        "--rounds",
        type=_reader(values.positive),
        metavar="N",
        help="take exactly N rounds, whatever the budget; in each, every arm runs once",
    )
    add(
        "--budget",
        dest="budget_s",
        type=_duration,
        default=BUDGET_S,
        metavar="TIME",
        help="time for all workloads together, as 90s, 5m or 1h; default 5m",
    )
    add(
        "--warm-up",
        type=_reader(values.whole),
        default=1,
        metavar="N",
        help="rounds before these that are not counted; default %(default)s",
    )
    add(
        "--seconds",
        type=_duration,
        default=WINDOW_S,
        metavar="S",
        help="how long each sample of a bundled workload is timed; default %(default)s",
    )
    add(
        "--omp-threads",
        type=_reader(values.positive),
        metavar="N",
        help="threads of each rank in every arm; default OMP_NUM_THREADS where you set it, else "
        "what the launcher would set for the arm",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("output").add_argument
    add(
        "--pick",
        nargs="?",
        const=(),
        type=_names(tuple(workloads.NAMES), "workload"),
        metavar="LIST",
        help="print nothing but the flags that are advised, and nothing where the default is best; "
        "by these workloads alone, the first of which decides. The page goes to stderr",
    )
    add(
        "--ranks",
        type=lambda text: tuple(_reader(values.positive)(word) for word in text.split(",")),
        default=(),
        metavar="LIST",
        help="also estimate what a step would take with so many ranks, as 8,64,512, from the same "
        "samples, where they can tell; also with --show",
    )
    add(
        "--json",
        metavar="FILE",
        help="keep everything, one JSON value per line: samples as they are taken, bindings, "
        "nodes, versions, seed",
    )
    add(
        "--plot",
        metavar="FILE",
        help="draw the differences with their intervals: .png or .svg",
    )
    add("--show", metavar="FILE", help="measure nothing: show a file of --json; --plot draws it")
    add(
        "--progress",
        action="store_true",
        help="say on stderr which sample is taken; a terminal shows it anyway",
    )


def _names(known: Sequence[str], noun: str) -> Callable[[str], tuple[str, ...]]:
    def parse_names(text: str) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(text.split(",")))
        for name in names:
            if name not in known:
                raise ArgumentTypeError(f"unknown {noun} {name!r}; use {', '.join(known)}")
        return names

    return parse_names


def _nproc(text: str) -> tuple[int | str, tuple[int, ...]]:
    """Read the number of workers to start, and the numbers to compare."""
    words = text.split(",")
    read = _reader(values.nproc)
    if len(words) == 1:
        return read(text), ()
    counts = [read(word) for word in words]
    if not all(isinstance(count, int) for count in counts) or sorted(set(counts)) != counts:
        raise ArgumentTypeError(f"{text!r} is not a list of growing numbers; use 1,2,4,8")
    return counts[-1], tuple(counts)


def _reader(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Turn a ValueError of a reader into an ArgumentTypeError: argparse would hide its message."""

    def read_checked(text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from None

    return read_checked


def _duration(text: str) -> float:
    """Read `90`, `90s`, `5m` or `1h`, in seconds."""
    with suppress(ValueError):
        if (seconds := values.seconds(text)) > 0:
            return seconds
    raise ArgumentTypeError(f"{text!r} is not a time; use one as 90s, 5m or 1h")
