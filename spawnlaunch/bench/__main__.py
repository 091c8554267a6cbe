"""The bench's entry: as a rank take part; else start ranks, or look at what was measured before."""

from spawnlaunch import finder

finder.order()

import os
import signal
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from typing import NoReturn

from spawnlaunch import errors, printing, witness
from spawnlaunch.bench import command_line, flags, launchers
from spawnlaunch.binding import report
from spawnlaunch.world import identity, managers

START_SHARE = 0.95  # of the budget, by which a sample has to be possible
RANK_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", *identity.MASTER)


def main() -> int:
    """Run the command line of this process; the result is its exit status."""
    argv = sys.argv[1:]
    if sys.stdout is None:
        printing.print_error(
            "stdout is closed; type --json FILE >/dev/null to keep a file alone", command_line.NAME
        )
        return os.EX_IOERR
    try:
        options = flags.parse(argv, os.environ)
        if not (options.compare or options.show):
            _refuse_hazards()
        if options.plot:
            from spawnlaunch.bench import plot

            plot.need_matplotlib()
        if options.compare or options.show:
            return _look_back(options)
        if all(os.environ.get(name) for name in RANK_VARIABLES):
            os.environ.pop(witness.WITNESS, None)  # nothing runs beside what is measured
            _end_in_time(options)
            environ = dict(os.environ)  # of a command
            os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # who waits warns of it
            from spawnlaunch.bench import run

            return run.run(options, environ)
    except errors.UsageError as error:
        from spawnlaunch.run import shared_errors

        shared_errors.refuse(error, os.environ, command_line.NAME)
        return 2
    return _launch(options, argv)


def _launch(options: flags.BenchRequest, argv: Sequence[str]) -> NoReturn:
    """Become the launcher, which starts this again in every rank, not pinned.

    So wherever the launcher runs, by hand, under srun or mpirun, the bench runs too. Where nobody
    else says how many ranks there are, there is one for each device, or else for each CPU.
    """
    own = 1 if options.launcher else options.nproc  # rank 0 starts the launchers
    nproc = own or (None if managers.detect(os.environ) else "auto")
    count = [] if nproc is None else ["--nproc", str(nproc)]
    threads = [] if options.omp_threads is None else ["--omp-threads", str(options.omp_threads)]
    watched = ["--progress"] if os.isatty(2) else []  # the ranks see a pipe of the launcher's
    # Ranks without a device of their own measure on the CPU.
    own_flags = "-m spawnlaunch --quiet --no-prefix --oversubscribe --bind none"
    launcher = [sys.executable, *own_flags.split(), *count]
    os.environ[launchers.BEGAN] = str(time.monotonic() - flags.age_s())
    os.execv(sys.executable, [*launcher, "-m", "spawnlaunch.bench", *threads, *watched, *argv])


def _end_in_time(options: flags.BenchRequest) -> None:
    """Where others have the CPUs, the import of torch alone may take longer than the budget."""
    began = os.environ.setdefault(launchers.BEGAN, str(time.monotonic() - flags.age_s()))
    used_s = time.monotonic() - float(began)
    if options.rounds or options.resume:
        return

    def end(_signum: int, _frame: object) -> None:
        if os.environ["RANK"] == "0":
            printing.print_error(
                f"the budget of {options.budget_s:g} s was used before the first sample: load "
                f"{os.getloadavg()[0]:.1f}; type --budget {max(300, 3 * options.budget_s):.0f}s",
                command_line.NAME,
            )
        os._exit(1)

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, max(0.001, START_SHARE * options.budget_s - used_s))


def _refuse_hazards() -> None:
    """Raises UsageError without torch, and where OpenMP has taken the CPUs from every arm."""
    if find_spec("torch") is None:
        raise errors.UsageError("torch is not installed; type pip install torch")
    if hazards := report.openmp_hazards(os.environ):
        raise errors.UsageError(f"{hazards[0]}; so all arms would sit there")


def _look_back(options: flags.BenchRequest) -> int:
    """--compare and --show."""
    from spawnlaunch.bench import compare, export, results, table

    if options.compare:
        old, new = ([results.read(path) for path in side] for side in options.compare)
        return printing.print_page("\n".join(compare.page(old, new)), command_line.NAME)
    assert options.show is not None
    shown = results.read(options.show)
    export.write(shown, options)
    if options.pick:
        from spawnlaunch.bench import advice

        return advice.print_pick(advice.advise(shown, options.chosen, options.least))
    text = export.for_stdout(shown, options) or "\n".join(
        table.page(
            shown, options.chosen, least=options.least, ranks=options.ranks, with_costs=options.why
        )
    )
    return printing.print_page(text, command_line.NAME)


if __name__ == "__main__":
    sys.exit(main())
