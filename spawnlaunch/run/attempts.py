"""One launch, from its scratch directory to its report: one attempt, or several."""

from __future__ import annotations

import os

from spawnlaunch.errors import UsageError
from spawnlaunch.records import NamedTuple
from spawnlaunch.run import files
from spawnlaunch.run.decisions import STUCK_S, Budget, Cause, Tally, restarted
from spawnlaunch.run.loop import LONGEST_S
from spawnlaunch.run.say import PATIENCE_S, say, write
from spawnlaunch.run.tree import named, why_it_stays
from spawnlaunch.run.worker import plan, renewed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from spawnlaunch.run.options import LaunchOptions
    from spawnlaunch.run.supervisor import Supervisor
    from spawnlaunch.run.tree import Tree
    from spawnlaunch.run.worker import Worker


class WorkerExit(NamedTuple):
    """How one worker ended."""

    rank: int
    local_rank: int
    pid: int | None  # None: it could not be started
    code: int  # exit status, or -n for death by signal n
    after_s: float  # from its start to its end, in seconds
    told: int  # the last signal that the launcher sent to end it; 0: it ended by itself
    error_file: str | None  # where torch's @record writes
    stderr: str | None  # the file that its stderr goes to
    tail: str | None = None  # what it wrote last to its stderr, where that is a pipe of ours
    left: bool = False  # SIGKILL did not end it, and nobody waits for it any more


class Attempt(NamedTuple):
    """Workers that failed, and were followed by others."""

    cause: Cause
    status: int  # what the launcher's exit status would have been
    healthy_s: float  # from their start to the failure, in seconds


class LaunchResult(NamedTuple):
    """How the launch ended, or one attempt of it."""

    status: int  # the launcher's exit status
    cause: Cause | None  # None: every worker ended with 0
    exits: tuple[WorkerExit, ...]  # in the order in which the workers ended
    hostname: str
    run_id: str
    oom: str | None  # evidence of the out-of-memory killer, in words
    restarted: tuple[Attempt, ...] = ()  # those before, in their order

    @property
    def first_failure(self) -> WorkerExit | None:
        """The worker whose failure ended the launch."""
        if self.cause is None or self.cause.kind != "failure":
            return None
        return next(one for one in self.exits if one.rank == self.cause.number)

    @property
    def healthy_s(self) -> float:
        """For how long it went well, in seconds."""
        first = self.first_failure
        return first.after_s if first else max(one.after_s for one in self.exits)


def launch_result(
    status: int,
    cause: Cause | None,
    options: LaunchOptions,
    exits: tuple[WorkerExit, ...] = (),
    oom: str | None = None,
) -> LaunchResult:
    """How this launch has ended."""
    run_id = options.launch.resolution.world.run_id
    return LaunchResult(status, cause, exits, options.hostname, run_id, oom)


def carry_out(
    supervisor: Supervisor, tree: Tree, workers: Sequence[Worker], options: LaunchOptions
) -> int:
    """Run the workers to their end, see that nothing is left, and say how it went.

    The result is the exit status.
    """
    request, output, scratch = options.request, supervisor.output, options.launch.scratch
    files.make_scratch(scratch)
    try:
        if request.timeout_s:
            supervisor.end_after(request.timeout_s)
        files.make_places(workers, scratch)
        try:
            early = supervisor.preload(request.preload) if request.preload else None
            if early:
                result = _ended_early(supervisor, *early, options)
            else:
                result = _run(supervisor, tree, workers, options)
        finally:
            supervisor.kill()  # nobody runs any more, unless something went wrong here
            end(tree, supervisor.patience_s)
            output.drain(options.grace_s, lambda: supervisor.state.was_told_to_end)
        if output.has_lost_something and not result.status:
            result = result._replace(status=os.EX_IOERR)
        return _leave_word(result, options)
    finally:
        files.remove_scratch(scratch)


def _ended_early(
    supervisor: Supervisor, status: int, words: str, options: LaunchOptions
) -> LaunchResult:
    """How a launch ended that had no workers yet."""
    from spawnlaunch.run import report

    cause = supervisor.state.cause or Cause("preload")
    say([words or report.ended_early(cause, options.request)])
    return launch_result(status, cause, options)


def _run(
    supervisor: Supervisor, tree: Tree, workers: Sequence[Worker], options: LaunchOptions
) -> LaunchResult:
    """Run the workers, and run them again as long as the budget of restarts allows it."""
    request, launch, tally = options.request, options.launch, Tally()
    budget = Budget(request.max_restarts, request.restart_window_s, request.no_restart_status)
    before: list[Attempt] = []
    while True:
        result = supervisor.run(workers)._replace(restarted=tuple(before))
        more = restarted(tally, budget, supervisor.state, result.healthy_s)
        if more is None or not end(tree, supervisor.patience_s) or supervisor.is_told_to_end():
            return result
        try:
            launch = renewed(launch)
            workers = plan(launch, more.total)
            files.make_places(workers, launch.scratch)
        except UsageError as error:
            say([f"cannot start anew: {error}"])
            return result
        from spawnlaunch.run import report  # most launches have nothing to report

        words = report.restart(result, more, budget)
        supervisor.output.say([words, *filter(None, [result.oom])])
        assert result.cause  # or there would be no restart
        before.append(Attempt(result.cause, result.status, result.healthy_s))
        tally = more


def end(tree: Tree, patience_s: float = STUCK_S) -> bool:
    """Kill everything of the run that is left, and name what does not die; True: all is gone."""
    left = [process.pid for process in tree.end(patience_s)]
    say(f"could not kill {named(pid)}, which is left: "
        f"{why_it_stays(pid) or 'it must be stuck in the kernel'}" for pid in left)  # fmt: skip
    return not left


def _leave_word(result: LaunchResult, options: LaunchOptions) -> int:
    """The report on stderr, and the files that were asked for; the result is the exit status."""
    from spawnlaunch.run import report  # at the end, when no worker waits for it

    failure, status = result.first_failure, result.status
    if options.result and not report.write_result(result, options.result):
        status = status or os.EX_IOERR
    if failure and options.error_file:
        report.copy_error_file(failure, options.error_file)
    patience_s = min(max(options.grace_s, PATIENCE_S), LONGEST_S)  # only this is left
    say(report.summary(result), patience_s)
    words = report.last_words(failure) if failure else None
    if failure and words:
        say([f"rank {failure.rank} on {options.hostname} said last:"], patience_s)
        write(words.rstrip("\n") + "\n", patience_s)
    return status
