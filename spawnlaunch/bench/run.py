"""A bench as a rank runs it: from joining the others to the page, the file and the exit status."""

import contextlib
import os
import signal
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from spawnlaunch.bench import matrix, record, result, table
from spawnlaunch.bench.advice import advise, print_pick
from spawnlaunch.bench.agree import agree
from spawnlaunch.bench.command_line import NAME
from spawnlaunch.bench.flags import BenchRequest
from spawnlaunch.bench.here import RankOnNode, look
from spawnlaunch.bench.rank_group import RankGoneError, RankGroup, join
from spawnlaunch.bench.record import Recorder
from spawnlaunch.bench.result import Result
from spawnlaunch.bench.rounds import Bench
from spawnlaunch.bench.sample import ENDING, FailedError
from spawnlaunch.bench.take import Participant
from spawnlaunch.errors import UsageError
from spawnlaunch.printing import print_error, print_page


class OutputError(Exception):
    """Nothing can be printed any more, and stderr has been told; the other ranks do not know."""


class Interruption(BaseException):
    """A signal asks rank 0 to end with what it knows; the message is its number."""


def run(options: BenchRequest, environ: Mapping[str, str]) -> int:
    """Take part; the result is the exit status of every rank."""
    for signum in (signal.SIGINT, signal.SIGPIPE):  # Ctrl-C, `| head`: no traceback of every rank
        signal.signal(signum, signal.SIG_DFL)
    here = look(environ)
    try:
        group = join(environ)
    except FailedError as failure:
        print_error(str(failure), NAME)
        return 1
    return _as_member(options, here, group)


def _as_member(options: BenchRequest, here: RankOnNode, group: RankGroup) -> int:
    error = ""
    try:
        agreed = agree(options, here, group)
        me = Participant(options, here, group, agreed)
        status = _take_part(me)
    except UsageError as refusal:
        status, error = 2, str(refusal)
    except FailedError as failure:
        status, error = 1, str(failure)
    except RankGoneError:
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
        print_error(
            f"on rank {group.rank}: {type(fault).__name__}: {fault}; this is a fault of "
            "spawnlaunch, set SPAWNLAUNCH_DEBUG=1 to see where",
            NAME,
            "internal error",
        )
        return os.EX_SOFTWARE
    if error and group.rank == 0:
        print_error(error, NAME)
    with contextlib.suppress(RankGoneError):  # who is gone need not be waited for
        group.leave()
    return status


def _take_part(me: Participant) -> int:
    if me.options.matrix and not me.options.resume:
        me.agreed.result.about["matrix"] = matrix.measure(me)
    return _as_first(me) if me.group.rank == 0 else _as_other(me)


def _as_other(me: Participant) -> int:
    """A rank that only measures."""
    refusal = me.group.tell(None)
    if refusal:
        raise UsageError(refusal)
    Bench(me, None, None).measure_all(lambda _: None)
    return int(me.group.tell(0))


def _as_first(me: Participant) -> int:
    """Rank 0, which keeps the file and prints the page."""
    group, options = me.group, me.options
    try:
        before = result.read(options.resume) if options.resume else None
        file = _open(options, me.agreed.result, before)
    except UsageError as refusal:
        group.tell(str(refusal))
        raise
    group.tell("")
    for signum in ENDING:
        signal.signal(signum, _interrupt)
    bench = Bench(me, file, before)
    if before:
        bench.result = bench.result._replace(about=result.read(file.path).about)
    page = Page(options)
    try:
        page.add(table.header(bench.result))
        bench.measure_all(page.add)
    except (Interruption, RankGoneError) as early:  # a signal to all may reach another rank first
        for signum in ENDING:
            signal.signal(signum, signal.SIG_IGN)
        why = "the end of another rank"
        if isinstance(early, Interruption):
            why = signal.Signals(int(str(early))).name
        _finish_early(options, file, page, why)
        raise
    except UsageError as unwritable:  # the disk is full, and the others know nothing of it
        print_error(str(unwritable), NAME)
        raise OutputError from None
    status = _finish(options, file, bench.result, page)
    if not options.json:
        Path(file.path).unlink(missing_ok=True)
    for signum in ENDING:
        signal.signal(signum, signal.SIG_DFL)
    group.tell(status)
    return status


def _interrupt(signum: int, _frame: Any) -> None:
    raise Interruption(str(signum))


def _open(options: BenchRequest, planned: Result, before: Result | None) -> Recorder:
    """The file of this bench. Raises UsageError, also where a file is of another bench."""
    if before is None or options.resume is None:
        path = options.json
        if path is None:
            descriptor, path = tempfile.mkstemp(prefix="spawnlaunch-bench-", suffix=".jsonl")
            os.close(descriptor)
        file = Recorder(path)
        file.write(record.BENCH, result.head(planned))
        return file
    if [arm._replace(ranks=_places(arm)) for arm in before.arms] != [
        arm._replace(ranks=_places(arm)) for arm in planned.arms
    ]:
        raise UsageError(
            f"--resume {options.resume}: the arms are not bound here as they were there; measure "
            "anew, with --json and another name"
        )
    file = Recorder(options.resume, resumed=True)
    where = {"date": planned.about["date"], "hosts": [node["host"] for node in planned.nodes]}
    file.write(record.RESUMED, where)
    return file


def _places(arm: result.Arm) -> tuple[result.BoundRank, ...]:
    """Other nodes of the same kind may go on with a bench."""
    return tuple(rank._replace(host="") for rank in arm.ranks)


class Page:
    """What is printed while it is measured."""

    def __init__(self, options: BenchRequest) -> None:
        self._to_stderr = options.pick  # then flags alone may be on stdout

    def add(self, lines: Iterable[str]) -> None:
        """A part of it. Raises OutputError."""
        text = "\n".join(lines)
        if self._to_stderr:
            with contextlib.suppress(OSError):
                os.write(2, f"{text}\n".encode())
        elif print_page(text, NAME):
            raise OutputError


def _finish_early(options: BenchRequest, file: Recorder, page: Page, why: str) -> None:
    """The tables of what there is, of which the workload that was interrupted has not been seen."""
    found = result.read(file.path)
    for measured in found.measured:
        if not measured.is_ended:
            page.add(table.block(measured, found, with_costs=options.why))
    if not options.pick:
        page.add(table.end(found, options.chosen))
    print_error(
        f"{why} ended it early; to go on, type python -m {NAME} --resume {file.path}",
        NAME,
        "interrupted",
    )


def _finish(options: BenchRequest, file: Recorder, done: Result, page: Page) -> int:
    """The files first: whoever reads the page may stop before its end. The exit status."""
    found, refusal = advise(done, options.chosen), ""
    try:
        file.write(record.FOUND, result.found(done, found._asdict()))
        if options.plot:
            from spawnlaunch.bench.plot import draw

            draw(done, options.plot)
    except UsageError as unwritable:
        refusal = str(unwritable)
    if not options.pick:
        page.add(table.end(done, options.chosen))
    if refusal:
        print_error(refusal, NAME)
        return 2
    failures = {why: None for each in done.measured for why in each.failed.values()}
    for why in failures:
        print_error(why, NAME)
    if options.pick and any(not each.failed for each in done.measured):
        status = print_pick(found)
        return 1 if failures and not status else status
    return 1 if failures else 0
