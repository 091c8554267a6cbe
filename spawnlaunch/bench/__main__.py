"""The bench's entry: as a rank take part; else start ranks, or look at what was measured before."""

from spawnlaunch import finder

finder.order()

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import NoReturn

from spawnlaunch.bench.command_line import NAME
from spawnlaunch.bench.flags import BenchRequest, parse
from spawnlaunch.binding import report
from spawnlaunch.errors import UsageError
from spawnlaunch.printing import print_error, print_page
from spawnlaunch.world import managers

RANK_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


def main() -> int:
    """Run the command line of this process; the result is its exit status."""
    argv = sys.argv[1:]
    if sys.stdout is None:
        print_error("stdout is closed; type --json FILE >/dev/null to keep a file alone", NAME)
        return os.EX_IOERR
    try:
        options = parse(argv, os.environ)
        if not (options.compare or options.show):
            _refuse_hazards()
        if options.plot:
            from spawnlaunch.bench.plot import need_matplotlib

            need_matplotlib()
        if options.compare or options.show:
            return _look_back(options)
        if all(os.environ.get(name) for name in RANK_VARIABLES):
            from spawnlaunch.bench.run import run

            return run(options, os.environ)
    except UsageError as error:
        from spawnlaunch.run import shared_errors

        shared_errors.refuse(error, os.environ, NAME)
        return 2
    return _launch(options, argv)


def _launch(options: BenchRequest, argv: Sequence[str]) -> NoReturn:
    """Become the launcher, which starts this again in every rank, not pinned.

    So wherever the launcher runs, by hand, under srun or mpirun, the bench runs too. Where nobody
    else says how many ranks there are, there is one for each device, or else for each CPU.
    """
    nproc = options.nproc or (None if managers.detect(os.environ) else "auto")
    count = [] if nproc is None else ["--nproc", str(nproc)]
    threads = [] if options.omp_threads is None else ["--omp-threads", str(options.omp_threads)]
    watched = ["--progress"] if os.isatty(2) else []  # the ranks see a pipe of the launcher's
    launcher = [
        sys.executable,
        "-m",
        "spawnlaunch",
        "--quiet",
        "--no-prefix",
        "--oversubscribe",  # ranks without a device of their own measure on the CPU
        "--bind",
        "none",
        *count,
    ]
    os.execv(sys.executable, [*launcher, "-m", "spawnlaunch.bench", *threads, *watched, *argv])


def _refuse_hazards() -> None:
    """Raises UsageError without torch, and where OpenMP has taken the CPUs from every arm."""
    if find_spec("torch") is None:
        raise UsageError("torch is not installed; type pip install torch")
    if hazards := report.openmp_hazards(os.environ):
        raise UsageError(f"{hazards[0]}; so all arms would sit there")


def _look_back(options: BenchRequest) -> int:
    """--compare and --show."""
    from spawnlaunch.bench import compare, result, table

    if options.compare:
        old, new = ([result.read(path) for path in side] for side in options.compare)
        return print_page("\n".join(compare.page(old, new)), NAME)
    assert options.show is not None
    shown = result.read(options.show)
    if options.plot:
        from spawnlaunch.bench.plot import draw

        draw(shown, options.plot)
    if options.pick:
        from spawnlaunch.bench.advice import advise, print_pick

        return print_pick(advise(shown, options.chosen))
    return print_page("\n".join(table.page(shown, options.chosen, with_costs=options.why)), NAME)


if __name__ == "__main__":
    sys.exit(main())
