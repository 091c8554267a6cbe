"""A launch, from its scratch directory to its report: one attempt, or several."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial

from spawnlaunch.base import errors, events, machine, say
from spawnlaunch.outcome import endings, exits, failures
from spawnlaunch.run import leftovers, removal
from spawnlaunch.run.supervisor import Supervisor
from spawnlaunch.run.tree import Tree
from spawnlaunch.workers import launches, starting
from spawnlaunch.world import host


def carry_out(supervisor: Supervisor, workers: Sequence[launches.Worker]) -> int:
    """Run the workers to their end, kill what they leave, and report how the launch ended.

    The result is the exit status.
    """
    launch, tree = supervisor.launch, supervisor.tree
    starting.make_scratch(launch.scratch)

    try:
        try:
            result, leave_word = _run(supervisor, workers)
        finally:
            if supervisor.rules.running:  # something went wrong here
                supervisor.kill()
            tree.kept.clear()
            end(tree)
            is_written = supervisor.output.drain(launch.grace_s, supervisor.was_told_to_end)
        if not (is_written or result.status):
            result = result._replace(status=os.EX_IOERR)
        supervisor.end(result)
        return leave_word(result) if result.cause or launch.result else result.status
    finally:
        remove_scratch(launch.scratch)


def _run(
    supervisor: Supervisor, workers: Sequence[launches.Worker]
) -> tuple[exits.LaunchResult, Callable[[exits.LaunchResult], int]]:
    """Run the workers.

    The result is how the launch ended, and the function that reports it.
    """
    launch, tree, leave_word = supervisor.launch, supervisor.tree, partial(_leave_word, supervisor)
    request, leader = launch.request, supervisor.leader
    if not leader:  # else they are others' ranks
        if request.timeout_s:
            supervisor.loop.alarm(
                lambda: supervisor.rules.timed_out(), request.timeout_s, always=True
            )
        starting.prepare_files(workers, launch.scratch)
    early = supervisor.preload() if request.preload else None
    if early:
        return _ended_early(supervisor, *early), leave_word
    if leader:
        return leader.run(lambda: end(tree)), leader.leave_word
    result = supervisor.run(workers)
    if result.cause is not None and request.max_restarts:
        result = _restarted(result, supervisor)
    return result, leave_word


def _restarted(result: exits.LaunchResult, supervisor: Supervisor) -> exits.LaunchResult:
    """Run the workers again after a first attempt, as long as the budget of restarts allows it."""
    launch, tree, used = supervisor.launch, supervisor.tree, 0  # of the restarts that are allowed
    request, final = launch.request, launch.request.no_restart_status
    most, window_s = request.max_restarts, request.restart_window_s
    while result.cause is not None:
        rules = supervisor.rules
        more = failures.used_after(result.cause, used, most, window_s, final)
        if result.status in final and used < most and not rules.was_told_to_end:
            supervisor.output.say([_why_not(result.status, final, most - used, most)])
        if more is None or rules.is_told_later or not end(tree) or supervisor.listen_for_end():
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


def remove_scratch(directory: str) -> None:
    """Remove the scratch directory, if it is there, with all that the workers left in it.

    Only a directory of our own user: where others may rename entries of TMPDIR, the name may by now
    lead elsewhere.
    """
    try:
        if machine.lstat(directory).st_uid == machine.geteuid():
            machine.rmdir(directory)
    except FileNotFoundError:
        return
    except OSError as error:  # most are empty
        removal.remove_tree(directory)
        if machine.lexists(directory):
            say.say([f"cannot remove {directory}: {error.strerror}; type rm -r {directory}"])


def _ended_early(supervisor: Supervisor, status: int, words: str) -> exits.LaunchResult:
    """Return the result of a launch that ended before its workers were started."""
    cause = supervisor.rules.cause or failures.Cause("preload", code=status, words=words)
    words = words or endings.ended_early(cause, supervisor.launch.request)
    say.say([words])
    signum = -cause.code if cause.kind == "signal" else 0
    if supervisor.leader:
        supervisor.leader.tell_unable(status, words.removeprefix("error: "), signum)
    return exits.LaunchResult(status, cause)


def end(tree: Tree) -> bool:
    """Kill all processes of the run that are left, and name those that do not die.

    True: all are gone.
    """
    left = [process.pid for process in tree.end(tree.patience_s)]
    if left:
        stuck = "it must be stuck in the kernel"
        say.say(f"could not kill {leftovers.named(pid)}, which is left: "
                f"{leftovers.why_it_stays(pid) or stuck}" for pid in left)  # fmt: skip
    return not left


def _leave_word(supervisor: Supervisor, result: exits.LaunchResult) -> int:
    """Write the report to stderr, and the files that the user asked for.

    The result is the exit status.
    """
    launch = supervisor.launch
    status = endings.write_files(result, launch)
    failure, hostname = result.first_failure, launch.hostname
    patience_s = min(max(launch.grace_s, say.PATIENCE_S), events.LONGEST_S)  # only this is left
    say.say(endings.summary(result, hostname), patience_s)
    if failure:
        endings.say_environment(failure, launch, patience_s)
        endings.say_words(failure, hostname, supervisor.output.shown_last(failure), patience_s)
    return status
