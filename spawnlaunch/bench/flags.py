"""The command line of the bench, and what the values of its flags may be."""

import argparse
import os
import shutil
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from spawnlaunch import values
from spawnlaunch.bench import arms, workloads
from spawnlaunch.errors import UsageError
from spawnlaunch.printing import print_page

NAME = "spawnlaunch.bench"
PROG = f"python -m {NAME}"
WINDOW_S = 0.3
BUDGET_S = 300.0
UNITS = {"s": 1, "m": 60, "h": 3600}

DESCRIPTION = """\
Run the same work under several bindings and say, with its uncertainty, which is best here.
Behind a -- stands a command of yours to measure in place of the bundled workloads: every rank
starts it as the launcher would."""

EPILOG = f"""\
arms:
  unpinned    no binding
  control     the same again: what it shows is noise
  far         spread as auto, each rank away from its own device
  packed      all ranks on one domain, as under a bad default
  {", ".join(arms.NAMES[4:])}
              the policies of --bind

workloads:
{workloads.HELP}

Rounds go on until each comparison of a workload is decided: better, worse or equal within
2%; at most 80, and at most until the budget is used.

exit status: 0; 1 when a rank or the command failed; 2 for wrong use of this command; 3 where
--pick is undecided; 74 when nothing can be printed."""


class BenchRequest(NamedTuple):
    """What the user asked for."""

    nproc: int | str | None  # workers on this machine; None: the launcher's default
    arms: tuple[str, ...]
    against: str  # the arm that the others are compared with
    workloads: tuple[str, ...]  # empty where there is a command
    command: tuple[str, ...]  # empty: the bundled workloads
    metric: str | None  # a key of the JSON lines that the command prints; None: wall time
    lower_is_better: bool  # of the metric
    rounds: int | None  # so many and no more; None: as many as it takes
    budget_s: float  # for all workloads together, where `rounds` is not given
    warm_up: int  # rounds that are not counted
    seconds: float  # that a bundled workload is timed for
    seed: int
    omp_threads: int | None  # of each rank, in all arms; None: what the arm gives
    chosen: tuple[str, ...]  # workloads that are advised for; empty: all, by the default weights
    pick: bool  # print nothing but the flags that are advised
    json: str | None
    plot: str | None
    compare: tuple[tuple[str, ...], tuple[str, ...]] | None  # files of --json: old ones, new ones
    show: str | None  # one such file
    progress: bool  # tell on stderr which sample is taken


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message.removeprefix("argument "))

    def print_help(self, _: object = None) -> NoReturn:
        raise SystemExit(print_page(self.format_help(), NAME))


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> BenchRequest:
    """Read the command line; raises UsageError, and SystemExit for --help."""
    ours, command = _cut(argv)
    given = vars(_parser().parse_args(ours))
    threads = environ.get("OMP_NUM_THREADS", "")
    if given["omp_threads"] is None and threads.isdigit() and "RANK" not in environ:
        given["omp_threads"] = int(threads)  # in a rank the variable is the launcher's, not yours
    given["against"] = given["against"] or given["arms"][0]
    names = given.pop("workloads")
    picked, cared_for = given.pop("pick"), given.pop("for")
    if picked and cared_for:
        raise UsageError("--pick names workloads and so does --for; leave one out")
    options = BenchRequest(
        **{name: given[name] for name in BenchRequest._fields if name in given},
        workloads=() if command else names or tuple(workloads.NAMES),
        command=command,
        chosen=picked or cared_for or (),
        pick=picked is not None,
    )
    _check_advice(options)
    _check(options, names)
    return options


def _cut(argv: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Our words, and those behind the first `--`."""
    if "--" not in argv:
        return list(argv), ()
    at = list(argv).index("--")
    return list(argv[:at]), tuple(argv[at + 1 :])


def _check(options: BenchRequest, workloads_given: tuple[str, ...] | None) -> None:
    if options.against not in options.arms:
        raise UsageError(
            f"--against {options.against} is not among the arms {','.join(options.arms)}; add it "
            "to --arms"
        )
    if options.command and workloads_given:
        raise UsageError("--workloads are ours and -- begins a command of yours; leave one out")
    if not options.command and (options.metric or options.lower_is_better):
        raise UsageError("--metric is of a command of yours; type it behind a --")
    if options.lower_is_better and not options.metric:
        raise UsageError("--lower-is-better is of a --metric; wall time is so by itself")
    if options.command and shutil.which(options.command[0]) is None:
        raise UsageError(
            f"program {options.command[0]!r} behind the -- is not found; type -- python train.py "
            "for a script"
        )
    if options.plot and os.path.splitext(options.plot)[1] not in (".png", ".svg"):
        raise UsageError(f"--plot {options.plot} ends in neither .png nor .svg; type one of them")
    old, new = options.compare or ((), ())
    for file in (*old, *new, *([options.show] if options.show else [])):
        if not os.path.isfile(file):
            raise UsageError(f"there is no file {file!r}; type the name of one that --json wrote")


def _check_advice(options: BenchRequest) -> None:
    if options.pick and options.compare:
        raise UsageError("--pick is of one bench, and --compare of several; leave one out")
    if options.chosen and options.command:
        raise UsageError(
            "--for and --pick choose among our workloads, and -- begins a command of yours"
        )
    absent = [name for name in options.chosen if name not in options.workloads]
    if absent and not options.show:
        raise UsageError(
            f"{absent[0]} is advised for and not measured; add it to --workloads, or leave that out"
        )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=PROG,
        usage=f"{PROG} [flags] [-- command args...]",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _add_what(parser)
    _add_how(parser)
    _add_output(parser)
    return parser


def _add_what(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("what is measured").add_argument
    add(
        "--nproc",
        type=_reader(values.nproc),
        metavar="N",
        help="workers on this machine: N, gpu, cpu or auto (a worker for each visible GPU, without "
        "any for each CPU), the default; under srun the tasks are the workers",
    )
    add(
        "--arms",
        type=_names(arms.NAMES, "arm"),
        default=arms.DEFAULT,
        metavar="LIST",
        help=f"arms, separated by commas; default {','.join(arms.DEFAULT)}",
    )
    add("--against", metavar="ARM", help="what the others are compared with; default the first")
    add(
        "--workloads",
        type=_names(tuple(workloads.NAMES), "workload"),
        metavar="LIST",
        help="likewise; default all",
    )
    add(
        "--metric",
        metavar="KEY",
        help="of your command: the number that its last JSON line with this key has, in place of "
        "wall time",
    )
    add("--lower-is-better", action="store_true", help="of the metric")


def _add_how(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("how").add_argument
    add(
        "--rounds",
        type=_reader(values.positive),
        metavar="N",
        help="in each of them every arm runs once; so many, whatever the budget",
    )
    add(
        "--budget",
        dest="budget_s",
        type=_duration,
        default=BUDGET_S,
        metavar="TIME",
        help="for all workloads together, as 90s, 5m or 1h; default 5m. A workload that is decided "
        "leaves its time to the next",
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
        type=_window,
        default=WINDOW_S,
        metavar="S",
        help="that a bundled workload is timed for in each sample; default %(default)s",
    )
    add(
        "--seed",
        type=_reader(values.whole),
        default=0,
        metavar="N",
        help="of the order of the arms in each round; default %(default)s",
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
        "--for",
        type=_names(tuple(workloads.NAMES), "workload"),
        metavar="LIST",
        help="workloads that the advice is for, all alike; default "
        + ", ".join(f"{name} {weight}" for name, weight in workloads.WEIGHTS.items())
        + " parts",
    )
    add(
        "--pick",
        nargs="?",
        const=(),
        type=_names(tuple(workloads.NAMES), "workload"),
        metavar="LIST",
        help="print nothing but the flags that are advised, for these workloads as with --for; "
        "nothing where the default is best. Tables go to stderr",
    )
    add("--json", metavar="FILE", help="write everything: samples, bindings, nodes, versions, seed")
    add(
        "--plot",
        metavar="FILE",
        help="draw samples by arm and rank, and the bindings: .png or .svg",
    )
    add(
        "--show", metavar="FILE", help="measure nothing: show such a JSON file, with --plot draw it"
    )
    add(
        "--progress",
        action="store_true",
        help="tell on stderr which sample is taken; a terminal is told without it",
    )
    add(
        "--compare",
        nargs=2,
        type=_files,
        metavar=("OLD", "NEW"),
        help="measure nothing: what changed from some such files, separated by commas, to others",
    )


def _names(known: Sequence[str], what: str) -> Callable[[str], tuple[str, ...]]:
    def parse_names(text: str) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(text.split(",")))
        for name in names:
            if name not in known:
                raise ArgumentTypeError(f"{name!r} is no {what}; there are {', '.join(known)}")
        return names

    return parse_names


def _reader(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """A reader of values whose ValueError says what is wrong; argparse would hide it."""

    def said(text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from None

    return said


def _files(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def _duration(text: str) -> float:
    """`90`, `90s`, `5m` or `1h`, in seconds."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in UNITS else (text, "s")
    try:
        seconds = values.seconds(number) * UNITS[unit]
    except ValueError:
        seconds = 0
    if seconds > 0:
        return seconds
    raise ArgumentTypeError(f"{text!r} is not a time; type one as 90s, 5m or 1h")


def _window(text: str) -> float:
    if (seconds := _reader(values.seconds)(text)) > 0:
        return float(seconds)
    raise ArgumentTypeError(f"{text!r} leaves no time to measure; type a number above 0")
