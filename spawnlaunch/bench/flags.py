"""The command line of the bench, and what the values of its flags may be."""

import argparse
import os
import shutil
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, NoReturn

from spawnlaunch import values
from spawnlaunch.bench import arms, workloads
from spawnlaunch.errors import UsageError
from spawnlaunch.printing import print_page

NAME = "spawnlaunch.bench"
PROG = f"python -m {NAME}"
ROUNDS = 12
WINDOW_S = 0.3

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

exit status: 0; 1 when a rank or the command failed; 2 for wrong use of this command."""


class BenchRequest(NamedTuple):
    """What the user asked for."""

    nproc: int | str | None  # workers on this machine; None: the launcher's default
    arms: tuple[str, ...]
    against: str  # the arm that the others are compared with
    workloads: tuple[str, ...]  # empty where there is a command
    command: tuple[str, ...]  # empty: the bundled workloads
    metric: str | None  # a key of the JSON lines that the command prints; None: wall time
    lower_is_better: bool  # of the metric
    rounds: int
    warm_up: int  # rounds that are not counted
    seconds: float  # that a bundled workload is timed for
    seed: int
    omp_threads: int | None  # of each rank, in all arms; None: what the arm gives
    json: str | None
    plot: str | None
    compare: tuple[str, str] | None  # two files of --json
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
    options = BenchRequest(
        **{name: given[name] for name in BenchRequest._fields if name in given},
        workloads=() if command else names or tuple(workloads.NAMES),
        command=command,
    )
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
    for file in (*(options.compare or ()), *([options.show] if options.show else [])):
        if not os.path.isfile(file):
            raise UsageError(f"there is no file {file!r}; type the name of one that --json wrote")


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
        type=values.nproc,
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
        type=values.positive,
        default=ROUNDS,
        metavar="N",
        help="in each of them every arm runs once; default %(default)s, and 9 are the fewest that "
        "can tell",
    )
    add(
        "--warm-up",
        type=values.whole,
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
        type=values.whole,
        default=0,
        metavar="N",
        help="of the order of the arms in each round, and of the bootstrap; default %(default)s",
    )
    add(
        "--omp-threads",
        type=values.positive,
        metavar="N",
        help="threads of each rank in every arm; default OMP_NUM_THREADS where you set it, else "
        "what the launcher would set for the arm",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("output").add_argument
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
        metavar=("OLD", "NEW"),
        help="measure nothing: what changed from one such file to another",
    )


def _names(known: Sequence[str], what: str) -> Callable[[str], tuple[str, ...]]:
    def parse_names(text: str) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(text.split(",")))
        for name in names:
            if name not in known:
                raise ArgumentTypeError(f"{name!r} is no {what}; there are {', '.join(known)}")
        return names

    return parse_names


def _window(text: str) -> float:
    if (seconds := values.seconds(text)) > 0:
        return seconds
    raise ArgumentTypeError(f"{text!r} leaves no time to measure; type a number above 0")
