"""Read the command line of the bench into a BenchRequest."""

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from spawnlaunch.base import errors
from spawnlaunch.bench import arms, command_line, workloads
from spawnlaunch.node import proc

AT_LOAD = ("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "LD_", "MALLOC_", "GLIBC_", "PYTHON")
BEGAN = "SPAWNLAUNCH_BENCH_BEGAN"  # the start of the bench, by the machine's monotonic clock


def age_s() -> float:
    """Seconds since this process began; its start took time too."""
    process = proc.look(os.getpid())
    if process is None:  # this system has no /proc
        return time.process_time()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - process.start / os.sysconf("SC_CLK_TCK")


class BenchRequest(NamedTuple):
    """The request of a command line."""

    nproc: int | str | None  # workers on this machine; None: the launcher's default
    counts: tuple[int, ...]  # numbers of workers that are compared; empty: one number
    arms: tuple[arms.ArmRequest, ...]
    against: str  # the arm that the others are compared with
    workloads: tuple[str, ...]  # empty where there is a command
    command: tuple[str, ...]  # empty: the bundled workloads
    metric: str | None  # a key of the JSON lines that the command prints; None: wall time
    lower_is_better: bool  # of the metric
    rounds: int | None  # exactly so many; None: as many as the budget allows
    budget_s: float  # for all workloads together, where `rounds` is not given
    warm_up: int  # rounds that are not counted
    seconds: float  # that a bundled workload is timed for
    launcher: tuple[str, ...]  # launchers that are compared; empty: bindings are
    omp_threads: int | None  # of each rank, in all arms; None: what the arm gives
    chosen: tuple[str, ...]  # workloads that decide the advice; empty: all
    pick: bool  # print nothing but the flags that are advised
    ranks: tuple[int, ...]  # sizes of a job, of which the steps are estimated
    json: str | None
    plot: str | None
    show: str | None  # one such file
    progress: bool  # print on stderr which sample is taken


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> BenchRequest:
    """Read the command line; raises UsageError, and SystemExit for --help."""
    words, command = list(argv), tuple[str, ...]()
    if "--" in words:
        at = words.index("--")
        words, command = words[:at], tuple(words[at + 1 :])
    flags = vars(command_line.parser().parse_args(words))
    threads = environ.get("OMP_NUM_THREADS", "")
    if flags["omp_threads"] is None and threads.isdigit() and "RANK" not in environ:
        flags["omp_threads"] = int(threads)  # in a rank the variable is the launcher's, not yours
    nproc, counts = flags.pop("nproc") or (None, ())
    arm_requests = _arms(flags, nproc, counts, command)
    every = [arm.name for arm in arm_requests]
    flags["against"] = flags["against"] or (arms.AUTO if arms.AUTO in every else every[0])
    names, picked = flags.pop("workloads"), flags.pop("pick")
    # The training loop comes first, so that it is measured where time is short.
    in_order = tuple(sorted(names or workloads.DEFAULT, key=lambda name: name != "train"))
    options = BenchRequest(
        **{name: flags[name] for name in BenchRequest._fields if name in flags and name != "arms"},
        nproc=nproc,
        counts=counts,
        arms=arm_requests,
        workloads=() if command else in_order,
        command=command,
        chosen=picked or (),
        pick=picked is not None,
    )
    _check_arms(options)
    _check_command(options, names)
    _check_output(options)
    return options


def _arms(
    flags: Mapping[str, Any],
    nproc: int | str | None,
    counts: tuple[int, ...],
    command: tuple[str, ...],
) -> tuple[arms.ArmRequest, ...]:
    """The arms of --arms, then those of --arm; or those of --nproc or --launcher alone."""
    named, custom, launchers = flags["arms"], flags["arm"], flags["launcher"]
    if launchers:
        if not command:
            raise errors.FlagsError("--launcher starts a command of yours; put it after a --")
        if not isinstance(nproc, int) or counts:
            raise errors.FlagsError("--launcher starts a number of workers; add --nproc 2")
        if named or custom or flags["pick"] is not None:
            raise errors.FlagsError(
                "--launcher compares launchers, which bind as they do by default; leave --arms, "
                "--arm and --pick out"
            )
        return tuple(arms.of_launcher(name, nproc) for name in launchers)
    if counts:
        if named or custom or flags["against"]:
            raise errors.FlagsError(
                "--nproc with several numbers compares these, bound as by default; leave --arms, "
                "--arm and --against out"
            )
        return tuple(arms.of_size(count) for count in counts)
    return (*map(arms.of_name, named or arms.DEFAULT), *custom)


def _check_arms(options: BenchRequest) -> None:
    names = [arm.name for arm in options.arms]
    if twice := [name for name in names if names.count(name) > 1]:
        raise errors.FlagsError(f"there are two arms {twice[0]!r}; give one of them another name")
    if options.against not in names:
        raise errors.FlagsError(
            f"--against {options.against} is not among the arms {','.join(names)}; add it to --arms"
        )
    variables = [(arm.name, name) for arm in options.arms for name, _ in arm.environ]
    early = [f"--arm {arm}: {name}" for arm, name in variables if name.startswith(AT_LOAD)]
    if early and not options.command:
        raise errors.FlagsError(
            f"{early[0]} is read when torch is loaded, once for all arms; use --threads N for "
            "threads, or measure a command of yours after a --"
        )


def _check_command(options: BenchRequest, named: tuple[str, ...] | None) -> None:
    if not options.command:
        if options.metric or options.lower_is_better:
            raise errors.FlagsError("--metric needs a command of yours; put it after a --")
        return
    if named:
        raise errors.FlagsError(
            "--workloads names bundled work and -- begins a command; leave one of them out"
        )
    if options.chosen:
        raise errors.FlagsError(
            "--pick chooses among bundled workloads, and -- begins a command of yours; use --pick "
            "alone"
        )
    if options.lower_is_better and not options.metric:
        raise errors.FlagsError(
            "--lower-is-better needs a --metric; lower wall time is better anyway"
        )
    if shutil.which(options.command[0]) is None:
        raise errors.UsageError(
            f"program {options.command[0]!r} after the -- is not found; use -- python train.py "
            "for a script"
        )


def _check_output(options: BenchRequest) -> None:
    if options.plot and os.path.splitext(options.plot)[1] not in (".png", ".svg"):
        raise errors.FlagsError(
            f"--plot {options.plot} ends in neither .png nor .svg; use one of them"
        )
    if options.show and not os.path.isfile(options.show):
        raise errors.UsageError(f"there is no file {options.show!r}; name one that --json wrote")
    absent = [name for name in options.chosen if name not in options.workloads]
    if absent and not options.show:
        raise errors.FlagsError(
            f"{absent[0]} is advised for but not measured; add it to --workloads, or leave that out"
        )
