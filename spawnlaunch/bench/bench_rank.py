"""Run a bench on a rank: join the others, measure, write the page and the file, return a status."""

import contextlib
import os
import signal
from collections.abc import Mapping
from typing import Any

from spawnlaunch.base import commands, errors
from spawnlaunch.bench import (
    agree,
    bench_page,
    bench_request,
    command_line,
    forked_sample,
    plot,
    rank_group,
    recommendation,
    results,
    rounds,
)
from spawnlaunch.bench.rank_on_node import RankOnNode, look


class OutputError(Exception):
    """Rank 0 can no longer print, and has reported it on stderr; the other ranks do not know."""


class Interruption(BaseException):
    """A signal asks rank 0 to end with the samples so far; the message is its number."""


def run(options: bench_request.BenchRequest, environ: Mapping[str, str]) -> int:
    """Take part in a bench; return the exit status of every rank."""
    for signum in (signal.SIGINT, signal.SIGPIPE):  # Ctrl-C, `| head`: no traceback of every rank
        signal.signal(signum, signal.SIG_DFL)
    here = look(environ)
    try:
        group = rank_group.join(environ)
    except forked_sample.FailedError as failure:
        commands.print_error(str(failure), command_line.NAME)
        return 1
    return _as_member(options, here, group)


def _as_member(
    options: bench_request.BenchRequest, here: RankOnNode, group: rank_group.RankGroup
) -> int:
    error = ""
    try:
        agreed = agree.agree(options, here, group)
        signal.setitimer(signal.ITIMER_REAL, 0)  # from here on samples end in time themselves
        bench = rounds.Bench(options, here, group, agreed)
        status = _measure_as_first(bench) if group.rank == 0 else _measure(bench)
    except errors.UsageError as refusal:
        status, error = 2, str(refusal)
    except forked_sample.FailedError as failure:
        status, error = 1, str(failure)
    except rank_group.RankEndedError:
        return 1
    except OutputError:
        group.report_death()
        return os.EX_IOERR
    except Interruption as interrupted:
        group.report_death()
        return 128 + int(str(interrupted))
    except Exception as fault:
        group.report_death()
        if here.environ.get("SPAWNLAUNCH_DEBUG"):
            raise
        commands.print_error(
            f"on rank {group.rank}: {type(fault).__name__}: {fault}; this is a fault of "
            "spawnlaunch, set SPAWNLAUNCH_DEBUG=1 to see where",
            command_line.NAME,
            "internal error",
        )
        return os.EX_SOFTWARE
    if error and group.rank == 0:
        commands.print_error(error, command_line.NAME)
    with contextlib.suppress(rank_group.RankEndedError):  # no need to wait for that rank
        group.leave()
    return status


def _measure(bench: rounds.Bench) -> int:
    """Measure on a rank other than 0, and return rank 0's status."""
    if refusal := bench.group.broadcast(None):
        raise errors.UsageError(refusal)
    bench.measure_all()
    return int(bench.group.broadcast(0))


def _measure_as_first(bench: rounds.Bench) -> int:
    """Measure on rank 0, which writes the file and prints the page."""
    try:
        if bench.options.json:
            bench.file = results.Recorder(bench.options.json)
            bench.file.write(results.BENCH, results.head(bench.result))
    except errors.UsageError as refusal:
        bench.group.broadcast(str(refusal))
        raise
    bench.group.broadcast("")
    for signum in forked_sample.ENDING:
        signal.signal(signum, _interrupt)
    try:
        bench.measure_all()
    # A signal to all may reach another rank first.
    except (Interruption, rank_group.RankEndedError) as early:
        for signum in forked_sample.ENDING:
            signal.signal(signum, signal.SIG_IGN)
        why = "the end of another rank"
        if isinstance(early, Interruption):
            why = signal.Signals(int(str(early))).name
        bench.result.about["ended_by"] = why
        _finish(bench)
        raise
    except errors.UsageError as unwritable:  # the disk is full, and the other ranks do not know it
        commands.print_error(str(unwritable), command_line.NAME)
        raise OutputError from None
    status = _finish(bench)
    for signum in forked_sample.ENDING:
        signal.signal(signum, signal.SIG_DFL)
    bench.group.broadcast(status)
    return status


def _interrupt(signum: int, _frame: Any) -> None:
    raise Interruption(str(signum))


def _finish(bench: rounds.Bench) -> int:
    """Write the files, then the page, since its reader may stop early; return the exit status."""
    options, done = bench.options, bench.result
    advice, refusal = recommendation.advise(done, options.chosen), ""
    try:
        if bench.file:
            bench.file.write(results.SUMMARY, results.summary(done, advice._asdict()))
        if options.plot:
            plot.draw(done, options.plot)
    except errors.UsageError as unwritable:
        refusal = str(unwritable)
    page = "\n".join(bench_page.page(done, options.chosen, options.ranks))
    if options.pick:
        with contextlib.suppress(OSError):
            os.write(2, f"{page}\n".encode())
    elif commands.print_page(page, command_line.NAME):
        raise OutputError
    if refusal:
        commands.print_error(refusal, command_line.NAME)
        return 2
    failures = {why: None for each in done.measured for why in each.failed.values()}
    for why in failures:
        commands.print_error(why, command_line.NAME)
    if options.pick and any(not each.failed for each in done.measured):
        status = recommendation.print_pick(advice)
        return 1 if failures and not status else status
    return 1 if failures else 0
