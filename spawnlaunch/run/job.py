"""One launch, from its scratch directory to its report."""

from collections.abc import Sequence

from spawnlaunch.run import logfiles, scratch
from spawnlaunch.run.decisions import STUCK_S
from spawnlaunch.run.options import Options
from spawnlaunch.run.outcome import Ending, Outcome
from spawnlaunch.run.processtree import Process, Tree
from spawnlaunch.run.say import PATIENCE_S, say, write
from spawnlaunch.run.supervisor import Gang
from spawnlaunch.run.worker import Worker


def carry_out(gang: Gang, tree: Tree, workers: Sequence[Worker], options: Options) -> int:
    """Run the workers to their end, see that nothing is left, and say how it went.

    The result is the exit status.
    """
    scratch.make(options.scratch)
    try:
        logfiles.make_directories(workers)
        gang.preload(options.preload)
        try:
            ending = gang.run(workers)
        finally:
            gang.kill()  # nobody runs any more, unless something went wrong here
            end(tree)
            gang.drain()
        _leave_word(ending, options)
        return ending.status
    finally:
        scratch.remove(options.scratch)


def end(tree: Tree) -> None:
    """Kill everything of the run that is left, and name what does not die."""
    left = tree.end(STUCK_S)
    if left:
        say([f"could not kill {_pids(left)}, which must be stuck in the kernel"])


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
