"""A bench as a rank runs it: from joining the others to the page, the file and the exit status."""

import contextlib
import os
import signal
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from spawnlaunch import errors, printing
from spawnlaunch.bench import (
    advice,
    agree,
    command_line,
    export,
    flags,
    matrix,
    rank_group,
    record,
    results,
    rounds,
    sample,
    stats,
    table,
    take,
)
from spawnlaunch.bench.here import RankOnNode, look

SAME = ("workloads", "seconds", "seed", "device")  # of a bench that goes on


class OutputError(Exception):
    """Nothing can be printed any more, and stderr has been told; the other ranks do not know."""


class Interruption(BaseException):
    """A signal asks rank 0 to end with what it knows; the message is its number."""


def run(options: flags.BenchRequest, environ: Mapping[str, str]) -> int:
    """Take part; the result is the exit status of every rank."""
    for signum in (signal.SIGINT, signal.SIGPIPE):  # Ctrl-C, `| head`: no traceback of every rank
        signal.signal(signum, signal.SIG_DFL)
    here = look(environ)
    try:
        group = rank_group.join(environ)
    except sample.FailedError as failure:
        printing.print_error(str(failure), command_line.NAME)
        return 1
    return _as_member(options, here, group)


def _as_member(options: flags.BenchRequest, here: RankOnNode, group: rank_group.RankGroup) -> int:
    error = ""
    try:
        agreed = agree.agree(options, here, group)
        me = take.Participant(options, here, group, agreed)
        status = _take_part(me)
    except errors.UsageError as refusal:
        status, error = 2, str(refusal)
    except sample.FailedError as failure:
        status, error = 1, str(failure)
    except rank_group.RankGoneError:
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
        printing.print_error(
            f"on rank {group.rank}: {type(fault).__name__}: {fault}; this is a fault of "
            "spawnlaunch, set SPAWNLAUNCH_DEBUG=1 to see where",
            command_line.NAME,
            "internal error",
        )
        return os.EX_SOFTWARE
    if error and group.rank == 0:
        printing.print_error(error, command_line.NAME)
    with contextlib.suppress(rank_group.RankGoneError):  # who is gone need not be waited for
        group.leave()
    return status


def _take_part(me: take.Participant) -> int:
    signal.setitimer(signal.ITIMER_REAL, 0)  # from here on samples end in time
    if me.options.matrix and not me.options.resume:
        me.agreed.result.about["matrix"] = matrix.measure(me)
    return _as_first(me) if me.group.rank == 0 else _as_other(me)


def _as_other(me: take.Participant) -> int:
    """A rank that only measures."""
    refusal = me.group.tell(None)
    if refusal:
        raise errors.UsageError(refusal)
    rounds.Bench(me, None, None).measure_all(lambda _: None)
    return int(me.group.tell(0))


def _as_first(me: take.Participant) -> int:
    """Rank 0, which keeps the file and prints the page."""
    group, options = me.group, me.options
    try:
        before = results.read(options.resume, is_open=True) if options.resume else None
        file = _open(options, me.agreed.result, before)
    except errors.UsageError as refusal:
        group.tell(str(refusal))
        raise
    group.tell("")
    for signum in sample.ENDING:
        signal.signal(signum, _interrupt)
    bench = rounds.Bench(me, file, before)
    if before:
        bench.result = bench.result._replace(about=results.read(file.path).about)
    page = Page(options)
    try:
        page.add(table.header(bench.result))
        bench.measure_all(page.add)
    # A signal to all may reach another rank first.
    except (Interruption, rank_group.RankGoneError) as early:
        for signum in sample.ENDING:
            signal.signal(signum, signal.SIG_IGN)
        why = "the end of another rank"
        if isinstance(early, Interruption):
            why = signal.Signals(int(str(early))).name
        _finish_early(options, file, page, why)
        raise
    except errors.UsageError as unwritable:  # the disk is full, and the others know nothing of it
        printing.print_error(str(unwritable), command_line.NAME)
        raise OutputError from None
    status = _finish(options, file, bench.result, page)
    if not options.json:
        Path(file.path).unlink(missing_ok=True)
    for signum in sample.ENDING:
        signal.signal(signum, signal.SIG_DFL)
    group.tell(status)
    return status


def _interrupt(signum: int, _frame: Any) -> None:
    raise Interruption(str(signum))


def _open(
    options: flags.BenchRequest, planned: results.Result, before: results.Result | None
) -> record.Recorder:
    """The file of this bench. Raises UsageError, also where a file is of another bench."""
    if before is None or options.resume is None:
        path = options.json
        if path is None:
            descriptor, path = tempfile.mkstemp(prefix="spawnlaunch-bench-", suffix=".jsonl")
            os.close(descriptor)
        file = record.Recorder(path)
        file.write(record.BENCH, results.head(planned))
        return file
    there, here = _kind(before), _kind(planned)
    if differ := [name for name in here if here[name] != there[name]]:
        raise errors.UsageError(
            f"--resume {options.resume}: {', '.join(differ)} not as they were there; measure anew, "
            "with --json and another name"
        )
    _refuse_no_more(options, before)
    file = record.Recorder(options.resume, resumed=True)
    where = {"date": planned.about["date"], "hosts": [node["host"] for node in planned.nodes]}
    lengths = {name: planned.about[name] for name in results.LENGTHS if options.longer}
    file.write(record.RESUMED, {**where, **lengths})
    return file


def _refuse_no_more(options: flags.BenchRequest, before: results.Result) -> None:
    """Raises UsageError where a --rounds or --budget beside --resume adds nothing."""
    if not options.longer:
        return
    used_s = max((taken.at_s for each in before.measured for taken in each.taken), default=0.0)
    ended = [each for each in before.measured if each.is_ended]
    is_whole = len(ended) == len(before.about["workloads"])
    enough = max((results.enough_rounds(each, before.against) or 2 * each.rounds for each in ended),
                 default=stats.LOOKS[0])  # fmt: skip
    if (not options.rounds and used_s >= options.budget_s) or (
        is_whole and not any(rounds.goes_on(each, options) for each in ended)
    ):
        raise errors.UsageError(
            f"--resume {options.resume} {options.longer}: all is decided, or has as many rounds or "
            f"as long ({used_s:.0f} s); type more, as --rounds {enough}"
        )


def _kind(result: results.Result) -> dict[str, Any]:
    """What has to be the same where a bench goes on; other nodes of the same kind may."""
    arms = [
        arm._replace(ranks=tuple(r._replace(host="") for r in arm.ranks)) for arm in result.arms
    ]
    return {"bindings": arms, **{name: result.about[name] for name in SAME}}


class Page:
    """What is printed while it is measured."""

    def __init__(self, options: flags.BenchRequest) -> None:
        self._to_stderr = options.is_page_elsewhere

    def add(self, lines: Iterable[str]) -> None:
        """A part of it. Raises OutputError."""
        text = "\n".join(lines)
        if self._to_stderr:
            with contextlib.suppress(OSError):
                os.write(2, f"{text}\n".encode())
        elif printing.print_page(text, command_line.NAME):
            raise OutputError


def _finish_early(options: flags.BenchRequest, file: record.Recorder, page: Page, why: str) -> None:
    """The tables of what there is, of which the workload that was interrupted has not been seen."""
    found = results.read(file.path)
    for measured in found.measured:
        if not measured.is_ended:
            page.add(table.block(measured, found, ranks=options.ranks, with_costs=options.why))
    if not options.pick:
        page.add(table.end(found, options.chosen, options.least))
    printing.print_error(
        f"{why} ended it early; to go on, type python -m {command_line.NAME} --resume {file.path} "
        f"{options.longer}".rstrip(),
        command_line.NAME,
        "interrupted",
    )


def _finish(
    options: flags.BenchRequest, file: record.Recorder, done: results.Result, page: Page
) -> int:
    """The files first: whoever reads the page may stop before its end. The exit status."""
    found, refusal = advice.advise(done, options.chosen, options.least), ""
    try:
        file.write(record.FOUND, results.found(done, found._asdict()))
        export.write(done, options)
    except errors.UsageError as unwritable:
        refusal = str(unwritable)
    if not options.pick:
        page.add(table.end(done, options.chosen, options.least))
    if refusal:
        printing.print_error(refusal, command_line.NAME)
        return 2
    text = export.for_stdout(done, options)
    if text and printing.print_page(text, command_line.NAME):
        raise OutputError
    failures = {why: None for each in done.measured for why in each.failed.values()}
    for why in failures:
        printing.print_error(why, command_line.NAME)
    if options.pick and any(not each.failed for each in done.measured):
        status = advice.print_pick(found)
        return 1 if failures and not status else status
    return 1 if failures else 0
