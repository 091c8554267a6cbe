"""The bench's entry: take part as a rank; else start ranks, or show an earlier bench."""

import sys

from spawnlaunch.base import own_path

PATH = own_path.take() if __name__ == "__main__" else sys.path

import os
import signal
import time
from collections.abc import Sequence
from importlib.util import find_spec
from typing import NoReturn

from spawnlaunch import witness
from spawnlaunch.__main__ import is_alone
from spawnlaunch.base import commands, errors
from spawnlaunch.bench import bench_request, command_line
from spawnlaunch.binding import placement
from spawnlaunch.world import identity, managers

START_SHARE = 0.95  # of the budget, by which a sample has to be possible
RANK_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", *identity.MASTER)


def main() -> int:
    """Run the command line of this process; the result is its exit status."""
    argv = sys.argv[1:]
    if sys.stdout is None:
        commands.print_error(
            "stdout is closed; use --json FILE >/dev/null to keep a file alone", command_line.NAME
        )
        return os.EX_IOERR
    try:
        options = bench_request.parse(argv, os.environ)
        if options.plot:
            from spawnlaunch.bench import plot

            plot.need_matplotlib()
        if options.show:
            return _show(options, options.show)
        if find_spec("torch") is None:
            raise errors.UsageError("torch is not installed; run pip install torch")
        if hazards := placement.openmp_hazards(os.environ):  # OpenMP has taken the CPUs from all
            raise errors.UsageError(f"{hazards[0]}; so all arms would sit there")
        if all(os.environ.get(name) for name in RANK_VARIABLES):
            os.environ.pop(witness.WITNESS, None)  # nothing may run beside a measurement
            _end_in_time(options)
            environ = dict(os.environ)  # of a command
            os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # a waiting rank would warn
            from spawnlaunch.bench import bench_rank

            return bench_rank.run(options, environ)
    except errors.UsageError as error:
        from spawnlaunch.run import shared_errors

        shared_errors.refuse(error, os.environ, command_line.NAME)
        return 2
    return _launch(options, argv, is_alone(sys._getframe(1)))


def _launch(options: bench_request.BenchRequest, argv: Sequence[str], may_exec: bool) -> NoReturn:
    """Become the launcher, which runs this command again in every rank, not pinned.

    Where this process does not run the bench alone, the launcher gets a process of its own.

    So the bench runs wherever the launcher does: by hand, under srun or mpirun. Where no resource
    manager sets the number of ranks, there is one for each device, or else for each CPU.
    """
    ranks = 1 if options.launcher else options.nproc  # rank 0 starts the launchers
    nproc = ranks or (None if managers.detect(os.environ) else "auto")
    count = [] if nproc is None else ["--nproc", str(nproc)]
    threads = [] if options.omp_threads is None else ["--omp-threads", str(options.omp_threads)]
    watched = ["--progress"] if os.isatty(2) else []  # the ranks see a pipe of the launcher's
    # Ranks without a device of their own measure on the CPU.
    fixed = "--quiet --prefix=never --oversubscribe --bind none"
    bench = ["-m", "spawnlaunch.bench", *threads, *watched, *argv]
    words = [*fixed.split(), *count, *bench]
    if not may_exec:
        from spawnlaunch import apart

        raise SystemExit(apart.run(*words))
    os.environ[bench_request.BEGAN] = str(time.monotonic() - bench_request.age_s())
    os.execv(sys.executable, [sys.executable, "-m", "spawnlaunch", *words])


def _end_in_time(options: bench_request.BenchRequest) -> None:
    """End in time: on a busy machine the import of torch alone may take longer than the budget."""
    began = os.environ.setdefault(
        bench_request.BEGAN, str(time.monotonic() - bench_request.age_s())
    )
    used_s = time.monotonic() - float(began)
    if options.rounds:
        return

    def end(_signum: int, _frame: object) -> None:
        if os.environ["RANK"] == "0":
            commands.print_error(
                f"the budget of {options.budget_s:g} s was used before the first sample: load "
                f"{os.getloadavg()[0]:.1f}; use --budget {max(300, 3 * options.budget_s):.0f}s",
                command_line.NAME,
            )
        os._exit(1)

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, max(0.001, START_SHARE * options.budget_s - used_s))


def _show(options: bench_request.BenchRequest, path: str) -> int:
    """Print the page of a file that --json wrote; return the exit status."""
    from spawnlaunch.bench import bench_page, plot, recommendation, results

    shown = results.read(path)
    if options.plot:
        plot.draw(shown, options.plot)
    if options.pick:
        return recommendation.print_pick(recommendation.advise(shown, options.chosen))
    text = "\n".join(bench_page.page(shown, options.chosen, options.ranks))
    return commands.print_page(text, command_line.NAME)


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        sys.path[:] = PATH
