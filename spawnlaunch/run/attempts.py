"""A launch, from its scratch directory to its report: one attempt, or several."""

from __future__ import annotations

from collections.abc import Sequence

from spawnlaunch.base import errors, events, say
from spawnlaunch.outcome import endings, failures
from spawnlaunch.run import leftovers, unable
from spawnlaunch.run.supervisor import Supervisor
from spawnlaunch.workers import launches, starting
from spawnlaunch.world import host

TYPE_CHECKING = False
if TYPE_CHECKING:
    from spawnlaunch.run import ganged


def carry_out(supervisor: Supervisor, workers: Sequence[launches.Worker]) -> int:
    """Run the workers to their end, kill what they leave, and report how the launch ended.

    The result is the exit status: that of the cause, or EX_IOERR where a launch without one has
    lost output, or cannot write the file of --result.
    """
    launch, tree = supervisor.launch, supervisor.tree
    starting.make_scratch(launch.scratch)
    try:
        try:
            result, gang = _run(supervisor, workers)
        finally:
            if supervisor.rules.running:  # something went wrong here
                supervisor.kill()
            tree.kept.clear()
            leftovers.end(tree)
            is_written = supervisor.output.drain(launch.grace_s, supervisor.was_told_to_end)
        if not is_written:
            result = result.with_loss()
        supervisor.end(result)
        if result.cause or launch.result:
            if not endings.write_files(result, launch, gang.elsewhere(result) if gang else ()):
                result = result.with_loss()
            if gang:
                gang.report(result)
            else:
                _report(supervisor, result)
        return result.status
    finally:
        leftovers.remove_scratch(launch.scratch)


def _run(
    supervisor: Supervisor, workers: Sequence[launches.Worker]
) -> tuple[failures.LaunchResult, ganged.Gang | None]:
    """Run the workers; the result is how the launch ended, and its gang on several nodes."""
    launch, tree = supervisor.launch, supervisor.tree
    request, has_gang = launch.request, launch.resolution.gathering is not None
    if not has_gang:  # else they are others' ranks
        if request.timeout_s:
            supervisor.loop.alarm(
                lambda: supervisor.rules.timed_out(), request.timeout_s, always=True
            )
        starting.prepare_files(workers, launch.scratch)
    early = supervisor.preload() if request.preload else None
    if early:
        return _ended_early(supervisor, *early), None
    if has_gang:
        from spawnlaunch.run import ganged  # most launches are of one node

        gang = ganged.Gang(supervisor, lambda: leftovers.end(tree))
        return gang.run(), gang
    result = supervisor.run(workers)
    if result.cause is not None and request.max_restarts:
        result = _restarted(result, supervisor)
    return result, None


def _restarted(result: failures.LaunchResult, supervisor: Supervisor) -> failures.LaunchResult:
    """Run the workers again after a first attempt, as long as the budget of restarts allows it."""
    launch, tree, used = supervisor.launch, supervisor.tree, 0  # of the restarts that are allowed
    request, final = launch.request, launch.request.no_restart_status
    most, window_s = request.max_restarts, request.restart_window_s
    while result.cause is not None:
        rules = supervisor.rules
        more = failures.used_after(result.cause, used, most, window_s, final)
        if result.status in final and used < most and not rules.was_told_to_end:
            supervisor.output.say([_why_not(result.status, final, most - used, most)])
        if (
            more is None
            or rules.is_told_later
            or not leftovers.end(tree)
            or supervisor.listen_for_end()
        ):
            break
        before = (*result.restarted, result.cause)
        total, used = len(before), more
        try:
            resolution, held_port = host.renew_port(launch.resolution, launch.environ)
            launch = launch._replace(resolution=resolution, held_port=held_port)
            workers = starting.make_workers(launch, total)
            starting.prepare_files(workers, launch.scratch, restart=total)
        except errors.UsageError as error:
            say.say([f"cannot restart: {error}"])
            break
        in_all = f" (in all {total})" * (total != used)
        words = f"{result.cause.in_words}: restart {used} of {most}{in_all}"
        supervisor.output.say([words])
        supervisor.note("restart", words=words)
        result = supervisor.run(workers)._replace(restarted=before)
    return result


def _why_not(status: int, final: frozenset[int], left: int, most: int) -> str:
    others = ",".join(map(str, sorted(final - {status}))) or "''"
    return (
        f"no restart after status {status}, though {left} of {most} are left; to have one, type "
        f"--no-restart-status {others}"
    )


def _ended_early(supervisor: Supervisor, status: int, words: str) -> failures.LaunchResult:
    """Return the result of a launch that ended before its workers were started."""
    cause = supervisor.rules.cause or failures.Cause("preload", code=status, words=words)
    words = words or endings.ended_early(cause, supervisor.launch.request)
    say.say([words])
    signum = -cause.code if cause.kind == "signal" else 0
    unable.tell_of(supervisor.launch, status, words.removeprefix("error: "), signum)
    return failures.LaunchResult(status, cause)


def _report(supervisor: Supervisor, result: failures.LaunchResult) -> None:
    """Print the report."""
    launch, hostname, failure = supervisor.launch, supervisor.launch.hostname, result.first_failure
    patience_s = min(max(launch.grace_s, say.PATIENCE_S), events.LONGEST_S)  # only this is left
    say.say(endings.summary(result, hostname), patience_s)
    if failure:
        endings.say_environment(failure, launch, patience_s)
        endings.say_words(failure, hostname, supervisor.output.shown_last(failure), patience_s)
