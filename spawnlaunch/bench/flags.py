"""What the user asked for: a BenchRequest, from the command line."""

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from spawnlaunch import errors
from spawnlaunch.bench import arms, command_line, launchers, own_arms, record, workloads
from spawnlaunch.bench.arms import ArmRequest
from spawnlaunch.node import proc

STDOUT = "-"  # in place of a file
AT_LOAD = ("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "LD_", "MALLOC_", "GLIBC_", "PYTHON")


def age_s() -> float:
    """Seconds since this process began; its start took time too."""
    found = proc.look(os.getpid())
    if found is None:  # this system has no /proc
        return time.process_time()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - found.start / os.sysconf("SC_CLK_TCK")


class BenchRequest(NamedTuple):
    """What the user asked for."""

    nproc: int | str | None  # workers on this machine; None: the launcher's default
    counts: tuple[int, ...]  # numbers of workers that are compared; empty: one number
    arms: tuple[ArmRequest, ...]
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
    matrix: bool  # copies by device and NUMA node as well
    launcher: tuple[str, ...]  # launchers that are compared; empty: bindings are
    omp_threads: int | None  # of each rank, in all arms; None: what the arm gives
    chosen: tuple[str, ...]  # workloads that are advised for; empty: all, by the default weights
    least: float  # the gain that is advised at all, as 0.02
    pick: bool  # print nothing but the flags that are advised
    ranks: tuple[int, ...]  # sizes of a job, of which the steps are estimated
    why: bool  # what samples cost each rank as well
    json: str | None
    resume: str | None  # such a file, to go on with
    longer: str  # the --rounds or --budget that is typed beside --resume
    argv: tuple[str, ...]  # what was typed
    plot: str | None
    csv: str | None  # a file, or STDOUT
    markdown: str | None
    compare: tuple[tuple[str, ...], tuple[str, ...]] | None  # files of --json: old ones, new ones
    show: str | None  # one such file
    progress: bool  # tell on stderr which sample is taken

    @property
    def files(self) -> list[str]:
        """Those that are to be written."""
        named = (self.json, self.plot, self.csv, self.markdown)
        return [path for path in named if path and path != STDOUT]

    @property
    def is_page_elsewhere(self) -> bool:
        """Whether stdout is for something else, and the page goes to stderr."""
        return self.pick or STDOUT in (self.csv, self.markdown)


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> BenchRequest:
    """Read the command line; raises UsageError, and SystemExit for --help."""
    ours, command = _cut(argv)
    given = vars(command_line.parser().parse_args(ours))
    if given["resume"]:
        return _resumed(given["resume"], ours, command, environ)
    return _read(given, argv, command, environ)


def _read(
    given: dict[str, Any], argv: Sequence[str], command: tuple[str, ...], environ: Mapping[str, str]
) -> BenchRequest:
    threads = environ.get("OMP_NUM_THREADS", "")
    if given["omp_threads"] is None and threads.isdigit() and "RANK" not in environ:
        given["omp_threads"] = int(threads)  # in a rank the variable is the launcher's, not yours
    nproc, counts = given.pop("nproc") or (None, ())
    if given["launcher"]:
        asked = _launchers(given, nproc, counts, command)
    else:
        asked = _arms(given, counts)
    given["against"] = given["against"] or asked[0].name
    names = given.pop("workloads")
    picked, cared_for = given.pop("pick"), given.pop("for")
    if picked and cared_for:
        raise errors.FlagsError("--pick names workloads and so does --for; leave one out")
    options = BenchRequest(
        **{name: given[name] for name in BenchRequest._fields if name in given and name != "arms"},
        nproc=nproc,
        counts=counts,
        arms=asked,
        argv=tuple(argv),
        workloads=() if command else names or workloads.DEFAULT,
        command=command,
        chosen=picked or cared_for or (),
        pick=picked is not None,
    )
    _check_advice(options)
    _check(options, names)
    return options


def _arms(given: dict[str, Any], counts: tuple[int, ...]) -> tuple[ArmRequest, ...]:
    """Those that were named, then those by flags, then those of the sets."""
    own, chosen = given.pop("arm"), given.pop("set")
    if counts:
        if given["arms"] or own or chosen or given["against"]:
            raise errors.FlagsError(
                "--nproc with several numbers compares these, bound as by default; leave --arms, "
                "--arm, --set and --against out"
            )
        return tuple(arms.of_size(count) for count in counts)
    # Sets and arms by flags say what is looked for: controls that nobody named would cost time.
    default = (arms.UNPINNED, arms.AUTO) if own or chosen else arms.DEFAULT
    named = [arms.request_of(name) for name in given["arms"] or default]
    every = (*named, *own, *own_arms.sets(chosen))
    twice = [arm.name for arm in own if [each.name for each in every].count(arm.name) > 1]
    if twice:
        raise errors.FlagsError(f"there are two arms {twice[0]!r}; give one of them another name")
    return tuple({arm.name: arm for arm in every}.values())


def _launchers(
    given: dict[str, Any],
    nproc: int | str | None,
    counts: tuple[int, ...],
    command: tuple[str, ...],
) -> tuple[ArmRequest, ...]:
    """An arm for each launcher."""
    own, chosen = given.pop("arm"), given.pop("set")
    if not command:
        raise errors.FlagsError(
            "--launcher starts a command of yours; type the command behind a --"
        )
    if not isinstance(nproc, int) or counts:
        raise errors.FlagsError("--launcher starts a number of workers; type it, as in --nproc 2")
    if given["arms"] or own or chosen or given["pick"] is not None:
        raise errors.FlagsError(
            "--launcher compares launchers, which bind as they do by default; leave --arms, --arm, "
            "--set and --pick out"
        )
    return tuple(arms.of_launcher(name, launchers.typed(name, nproc)) for name in given["launcher"])


def _resumed(
    path: str, ours: list[str], command: tuple[str, ...], environ: Mapping[str, str]
) -> BenchRequest:
    """What was typed for this file's bench, and behind it what is typed now."""
    if command:
        raise errors.FlagsError(
            "--resume goes on with the command that its file names; leave -- out"
        )
    _need_file(path)
    try:
        _, first = next(record.lines(path))
        words, command = _cut(first["about"]["argv"])
    except (OSError, ValueError, KeyError, TypeError, StopIteration) as error:
        raise errors.UsageError(
            f"--resume {path}: it is not what --json of this version writes ({error!r}); type the "
            "name of a file that --json wrote"
        ) from None
    given = vars(command_line.parser().parse_args([*words, *ours]))
    stored = ("--", *command) if command else ()
    typed = {word.partition("=")[0] for word in ours}
    if "--json" in typed and given["json"] != path:
        raise errors.FlagsError(f"--resume {path} goes on in that file; leave --json out")
    given["json"] = given["resume"] = path
    if "--rounds" in typed:
        given["longer"] = f"--rounds {given['rounds']}"
    elif "--budget" in typed:
        given["longer"], given["rounds"] = f"--budget {given['budget_s']:g}s", None
    return _read(given, (*words, *stored), command, environ)


def _cut(argv: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Our words, and those behind the first `--`."""
    if "--" not in argv:
        return list(argv), ()
    at = list(argv).index("--")
    return list(argv[:at]), tuple(argv[at + 1 :])


def _check(options: BenchRequest, workloads_given: tuple[str, ...] | None) -> None:
    names = [arm.name for arm in options.arms]
    if options.against not in names:
        raise errors.FlagsError(
            f"--against {options.against} is not among the arms {','.join(names)}; add it to --arms"
        )
    bundled = ["--workloads"] * bool(workloads_given) + ["--matrix"] * options.matrix
    if options.command and bundled:
        raise errors.FlagsError(
            f"{bundled[0]} names bundled work and -- begins a command; leave one of them out"
        )
    if not options.command and (options.metric or options.lower_is_better):
        raise errors.FlagsError("--metric needs a command of yours; type the command behind a --")
    if options.lower_is_better and not options.metric:
        raise errors.FlagsError(
            "--lower-is-better needs a --metric; lower wall time is better anyway"
        )
    if options.command and shutil.which(options.command[0]) is None:
        raise errors.UsageError(
            f"program {options.command[0]!r} behind the -- is not found; type -- python train.py "
            "for a script"
        )
    if options.plot and os.path.splitext(options.plot)[1] not in (".png", ".svg"):
        raise errors.FlagsError(
            f"--plot {options.plot} ends in neither .png nor .svg; type one of them"
        )
    _check_tables(options)
    _check_variables(options)
    for side in options.compare or ([options.show] if options.show else [],):
        for file in side:
            _need_file(file)
        if len({*map(os.path.realpath, side)}) < len(side):
            raise errors.FlagsError(f"{','.join(side)}: a bench counts once; type each file once")


def _check_variables(options: BenchRequest) -> None:
    names = [(arm.name, name) for arm in options.arms for name, _ in arm.environ]
    early = [f"--arm {arm}: {name}" for arm, name in names if name.startswith(AT_LOAD)]
    if early and not options.command:
        raise errors.FlagsError(
            f"{early[0]} is read when torch is loaded, once for all arms; type --threads N for "
            "threads, or measure a command of yours behind a --"
        )


def _need_file(path: str) -> None:
    if not os.path.isfile(path):
        raise errors.UsageError(f"there is no file {path!r}; type one that --json wrote")


def _check_tables(options: BenchRequest) -> None:
    asked = {"--csv": options.csv, "--markdown": options.markdown}
    typed = [flag for flag, path in asked.items() if path]
    printed = [flag for flag, path in asked.items() if path == STDOUT]
    if typed and options.compare:
        raise errors.FlagsError(f"{typed[0]} is of one bench; type --show FILE for --compare")
    if len(printed) > 1 or (printed and options.pick):
        other = "--pick" if options.pick else printed[1]
        raise errors.FlagsError(
            f"{printed[0]} - prints to stdout, and so does {other}; name a file for {printed[0]}"
        )


def _check_advice(options: BenchRequest) -> None:
    if options.pick and options.compare:
        raise errors.FlagsError("--pick reads one bench, and --compare several; leave one out")
    if options.chosen and options.command:
        raise errors.FlagsError(
            "--for and --pick choose among bundled workloads, and -- begins a command of yours"
        )
    absent = [name for name in options.chosen if name not in options.workloads]
    if absent and not options.show:
        raise errors.FlagsError(
            f"{absent[0]} is advised for but not measured; add it to --workloads, or leave that out"
        )
