"""One launch, from its scratch directory to its report: one attempt, or several."""

from __future__ import annotations

import os

from spawnlaunch.errors import UsageError
from spawnlaunch.run.decisions import Budget, Cause, Tally, TimedOut, restarted
from spawnlaunch.run.loop import LONGEST_S
from spawnlaunch.run.model import Attempt, LaunchResult
from spawnlaunch.run.say import PATIENCE_S, say, write
from spawnlaunch.run.tree import named, why_it_stays
from spawnlaunch.run.worker import make_workers, prepare_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from spawnlaunch.run.model import Launch, Worker
    from spawnlaunch.run.supervisor import Supervisor
    from spawnlaunch.run.tree import Tree


def carry_out(supervisor: Supervisor, workers: Sequence[Worker]) -> int:
    """Run the workers to their end, see that nothing is left, and say how it went.

    The result is the exit status.
    """
    launch, tree = supervisor.launch, supervisor.tree
    request, scratch = launch.request, launch.scratch
    make_scratch(scratch)
    try:
        has_gang = launch.resolution.gathering is not None
        if request.timeout_s and not has_gang:
            supervisor.loop.alarm(lambda: supervisor.happened(TimedOut()), request.timeout_s)
        if not has_gang:  # else they are others' ranks
            prepare_files(workers, scratch)
        try:
            early = supervisor.preload() if request.preload else None
            if early:
                result = _ended_early(supervisor, *early)
            elif has_gang:
                from spawnlaunch.run import ganged  # most launches are of one node

                gang = ganged.Gang(supervisor, lambda: end(tree))
                result = gang.run()
            else:
                result = _run(supervisor, workers)
                if result.cause is None and tree.living():
                    from spawnlaunch.run import leftovers  # most workers leave nothing

                    leftovers.let_end(supervisor, tree, launch.grace_s)
        finally:
            if supervisor.state.running:  # something went wrong here
                supervisor.kill()
            tree.kept.clear()
            end(tree)
            supervisor.output.drain(launch.grace_s, lambda: supervisor.state.was_told_to_end)
        if supervisor.output.has_lost_something and not result.status:
            result = result._replace(status=os.EX_IOERR)
        if supervisor.journal:
            supervisor.journal.end(result)
        if has_gang and not early:
            return gang.leave_word(result)
        return _leave_word(result, launch) if result.cause or launch.result else result.status
    finally:
        remove_scratch(scratch)


def make_scratch(directory: str) -> None:
    """Make it, new and for ourselves alone. Raises UsageError where nothing can be written.

    It is for files that need not outlive the launch: the workers' error files. Whoever starts the
    workers makes it and removes it; if that is a guard that was killed, the launcher removes it.
    """
    try:
        os.mkdir(directory, mode=0o700)  # refuses whatever is there, a link too (mkdir(2))
    except OSError as error:
        raise UsageError(
            f"cannot make the directory {directory}: {error.strerror}; set TMPDIR to a place that "
            "can be written"
        ) from None


def remove_scratch(directory: str) -> None:
    """Remove the directory, if it is there, with whatever the workers left in it.

    Only ours: where others may rename what is in TMPDIR, the name may lead elsewhere by now.
    """
    try:
        if os.lstat(directory).st_uid == os.geteuid():
            os.rmdir(directory)
    except FileNotFoundError:
        return
    except OSError:  # most are empty
        from spawnlaunch.run import files

        files.remove_tree(directory)


def _ended_early(supervisor: Supervisor, status: int, words: str) -> LaunchResult:
    """How a launch ended that had no workers yet."""
    from spawnlaunch.run import report

    cause = supervisor.state.cause or Cause("preload")
    say([words or report.ended_early(cause, supervisor.launch.request)])
    return LaunchResult(status, cause)


def _run(supervisor: Supervisor, workers: Sequence[Worker]) -> LaunchResult:
    """Run the workers, and run them again as long as the budget of restarts allows it."""
    launch, tally = supervisor.launch, Tally()
    before: tuple[Attempt, ...] = ()
    request = launch.request
    budget = Budget(request.max_restarts, request.restart_window_s, request.no_restart_status)
    while True:
        result = supervisor.run(workers)._replace(restarted=before)
        if result.cause is None:
            return result
        more = restarted(tally, budget, supervisor.state, result.healthy_s)
        is_final = result.status in budget.final and tally.used < budget.most
        if is_final and not supervisor.state.was_told_to_end:
            others = ",".join(map(str, sorted(budget.final - {result.status}))) or "''"
            supervisor.output.say([
                f"no restart after status {result.status}, though {budget.most - tally.used} of "
                f"{budget.most} are left; to have one, type --no-restart-status {others}"
            ])  # fmt: skip
        if more is None or not end(supervisor.tree) or supervisor.listen_for_end():
            return result
        try:
            from spawnlaunch.world.host import renew_port

            resolution, held_port = renew_port(launch.resolution, launch.environ)
            launch = launch._replace(resolution=resolution, held_port=held_port)
            workers = make_workers(launch, more.total)
            prepare_files(workers, launch.scratch, restart=more.total)
        except UsageError as error:
            say([f"cannot restart: {error}"])
            return result
        from spawnlaunch.run import report  # most launches have nothing to report

        words = report.restart(result, launch.hostname, more, budget)
        supervisor.output.say([words, *filter(None, [result.oom])])
        if supervisor.journal:
            supervisor.journal.tell("restart", words=words)
        before += (Attempt(result.cause, result.status, result.healthy_s),)
        tally = more


def end(tree: Tree) -> bool:
    """Kill everything of the run that is left, and name what does not die; True: all is gone."""
    left = [process.pid for process in tree.end(tree.patience_s)]
    if left:
        say(f"could not kill {named(pid)}, which is left: "
            f"{why_it_stays(pid) or 'it must be stuck in the kernel'}" for pid in left)  # fmt: skip
    return not left


def _leave_word(result: LaunchResult, launch: Launch) -> int:
    """The report on stderr, and the files that were asked for; the result is the exit status."""
    from spawnlaunch.run import report  # at the end, when no worker waits for it

    failure, status, hostname = result.first_failure, result.status, launch.hostname
    if launch.result and not report.write_result(result, launch):
        status = status or os.EX_IOERR
    if failure and launch.error_file:
        report.copy_error_file(failure, launch.error_file)
    patience_s = min(max(launch.grace_s, PATIENCE_S), LONGEST_S)  # only this is left
    say(report.summary(result, hostname), patience_s)
    words = report.last_words(failure) if failure else None
    if failure and words:
        say([f"rank {failure.rank} on {hostname} said last:"], patience_s)
        write(words.rstrip("\n") + "\n", patience_s)
    return status
