"""One launch, from its scratch directory to its report."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from spawnlaunch.errors import UsageError
from spawnlaunch.run import logfiles, scratch
from spawnlaunch.run.decisions import STUCK_S
from spawnlaunch.run.options import Options
from spawnlaunch.run.outcome import Attempt, Ending, Outcome
from spawnlaunch.run.processtree import Process, Tree
from spawnlaunch.run.restarts import Tally, restarted
from spawnlaunch.run.say import PATIENCE_S, say, write
from spawnlaunch.run.supervisor import Gang
from spawnlaunch.run.worker import Worker


class Crew(NamedTuple):
    """The workers of each attempt."""

    first: Sequence[Worker]
    again: Callable[[int], Sequence[Worker]]  # for restart 1, 2, ...; raises UsageError


def carry_out(gang: Gang, tree: Tree, crew: Crew, options: Options) -> int:
    """Run the workers to their end, see that nothing is left, and say how it went.

    The result is the exit status.
    """
    scratch.make(options.scratch)
    try:
        if options.timeout_s:
            gang.end_after(options.timeout_s)
        logfiles.prepare(crew.first)
        gang.preload(options.preload)
        try:
            ending = _run(gang, tree, crew, options)
        finally:
            gang.kill()  # nobody runs any more, unless something went wrong here
            end(tree)
            gang.drain()
        _leave_word(ending, options)
        return ending.status
    finally:
        scratch.remove(options.scratch)


def _run(gang: Gang, tree: Tree, crew: Crew, options: Options) -> Ending:
    """Run the workers, and run them again as long as the budget of restarts allows it."""
    workers, tally = crew.first, Tally()
    attempts: list[Attempt] = []
    while True:
        ending = gang.run(workers)
        more = restarted(tally, options.restarts, gang.state, ending.healthy_s)
        if more is None or not end(tree) or gang.is_told_to_end():
            return ending._replace(restarted=tuple(attempts))
        try:
            workers = crew.again(more.total)
            logfiles.prepare(workers)
        except UsageError as error:
            say([f"cannot start anew: {error}"])
            return ending._replace(restarted=tuple(attempts))
        from spawnlaunch.run import report  # most launches have nothing to report

        gang.say([report.restart(ending, more, options.restarts), *filter(None, [ending.oom])])
        assert ending.cause  # or there would be no restart
        attempts.append(Attempt(ending.cause, ending.status, ending.healthy_s))
        tally = more


def end(tree: Tree) -> bool:
    """Kill everything of the run that is left, and name what does not die; True: all is gone."""
    left = tree.end(STUCK_S)
    if left:
        say([f"could not kill {_pids(left)}, which must be stuck in the kernel"])
    return not left


def _pids(processes: Sequence[Process]) -> str:
    return ", ".join(f"pid {process.pid}" for process in processes)


def _leave_word(ending: Ending, options: Options) -> None:
    """The report on stderr, and the files that were asked for."""
    from spawnlaunch.run import errorfile, report  # at the end, when no worker waits for it

    failure = ending.first_failure
    if options.result:
        write_result(ending, options.result)
    if failure and options.error_file:
        _write_error_file(failure, options.error_file)
    patience_s = max(options.grace_s, PATIENCE_S)  # nothing is left to be done but this
    say(report.summary(ending), patience_s)
    words = errorfile.last_words(failure) if failure else None
    if failure and words:
        say([f"rank {failure.rank} said last:"], patience_s)
        write(words.rstrip("\n") + "\n", patience_s)


def write_result(ending: Ending, path: str) -> None:
    """Write the file of --result, or say why not: the exit status stays the workers'."""
    from spawnlaunch.run import result

    try:
        result.write(ending, path)
    except OSError as error:
        say([f"cannot write --result {path}: {error.strerror}"])


def _write_error_file(failure: Outcome, path: str) -> None:
    from spawnlaunch.run import errorfile

    try:
        errorfile.copy(failure, path)
    except OSError as error:
        say([f"cannot write TORCHELASTIC_ERROR_FILE {path}: {error.strerror}"])
