"""One launch, from its scratch directory to its report."""

from __future__ import annotations

import os

from spawnlaunch.errors import UsageError
from spawnlaunch.records import NamedTuple
from spawnlaunch.run import logfiles, scratch
from spawnlaunch.run.decisions import STUCK_S, Cause
from spawnlaunch.run.loop import LONGEST_S
from spawnlaunch.run.options import Options
from spawnlaunch.run.outcome import Attempt, Ending, Outcome
from spawnlaunch.run.processtree import Tree
from spawnlaunch.run.restarts import Tally, restarted
from spawnlaunch.run.say import PATIENCE_S, say, write
from spawnlaunch.run.supervisor import Gang
from spawnlaunch.run.worker import Launch, Worker, plan, renewed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class Crew(NamedTuple):
    """The workers of the first attempt, and what those of the others are made of."""

    first: Sequence[Worker]
    launch: Launch


def carry_out(gang: Gang, tree: Tree, crew: Crew, options: Options) -> int:
    """Run the workers to their end, see that nothing is left, and say how it went.

    The result is the exit status.
    """
    scratch.make(options.scratch)
    try:
        if options.timeout_s:
            gang.end_after(options.timeout_s)
        logfiles.prepare(crew.first, options.scratch)
        try:
            early = gang.preload(options.preload) if options.preload else None
            ending = _early(gang, *early, options) if early else _run(gang, tree, crew, options)
        finally:
            gang.kill()  # nobody runs any more, unless something went wrong here
            end(tree, gang.patience_s)
            gang.drain()
        if gang.has_lost_output and not ending.status:
            ending = ending._replace(status=os.EX_IOERR)
        return _leave_word(ending, options)
    finally:
        scratch.remove(options.scratch)


def _early(gang: Gang, status: int, words: str, options: Options) -> Ending:
    """How a launch ended that had no workers yet."""
    from spawnlaunch.run import report

    cause = gang.state.cause or Cause("preload")
    say([words or report.ended_early(cause, options)])
    return Ending(status, cause, (), options.hostname, options.run_id, None)


def _run(gang: Gang, tree: Tree, crew: Crew, options: Options) -> Ending:
    """Run the workers, and run them again as long as the budget of restarts allows it."""
    (workers, launch), tally = crew, Tally()
    attempts: list[Attempt] = []
    while True:
        ending = gang.run(workers)
        more = restarted(tally, options.restarts, gang.state, ending.healthy_s)
        if more is None or not end(tree, gang.patience_s) or gang.is_told_to_end():
            return ending._replace(restarted=tuple(attempts))
        try:
            launch = renewed(launch)
            workers = plan(launch, more.total)
            logfiles.prepare(workers, options.scratch)
        except UsageError as error:
            say([f"cannot start anew: {error}"])
            return ending._replace(restarted=tuple(attempts))
        from spawnlaunch.run import report  # most launches have nothing to report

        gang.say([report.restart(ending, more, options.restarts), *filter(None, [ending.oom])])
        assert ending.cause  # or there would be no restart
        attempts.append(Attempt(ending.cause, ending.status, ending.healthy_s))
        tally = more


def end(tree: Tree, patience_s: float = STUCK_S) -> bool:
    """Kill everything of the run that is left, and name what does not die; True: all is gone."""
    left = tree.end(patience_s)
    if left:
        from spawnlaunch.run import unkillable

        say(f"could not kill {unkillable.name(process.pid)}, which is left: "
            f"{unkillable.reason(process.pid) or 'it must be stuck in the kernel'}"
            for process in left)  # fmt: skip
    return not left


def _leave_word(ending: Ending, options: Options) -> int:
    """The report on stderr, and the files that were asked for; the result is the exit status."""
    from spawnlaunch.run import errorfile, report  # at the end, when no worker waits for it

    failure, status = ending.first_failure, ending.status
    if options.result and not write_result(ending, options.result):
        status = status or os.EX_IOERR
    if failure and options.error_file:
        _write_error_file(failure, options.error_file)
    patience_s = min(max(options.grace_s, PATIENCE_S), LONGEST_S)  # only this is left
    say(report.summary(ending), patience_s)
    words = errorfile.last_words(failure) if failure else None
    if failure and words:
        say([f"rank {failure.rank} on {options.hostname} said last:"], patience_s)
        write(words.rstrip("\n") + "\n", patience_s)
    return status


def write_result(ending: Ending, path: str) -> bool:
    """Write the file of --result, or say why not."""
    from spawnlaunch.run import result

    try:
        result.write(ending, path)
    except OSError as error:
        say([f"cannot write --result {path}: {error.strerror}"])
        return False
    return True


def _write_error_file(failure: Outcome, path: str) -> None:
    from spawnlaunch.run import errorfile

    try:
        errorfile.copy(failure, path)
    except OSError as error:
        say([f"cannot write TORCHELASTIC_ERROR_FILE {path}: {error.strerror}"])
