"""The workers of one node, started once more after a failure: whether, and how."""

from __future__ import annotations

from spawnlaunch import errors, failures
from spawnlaunch.run import say, starting
from spawnlaunch.world import host

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from spawnlaunch.run import launches
    from spawnlaunch.run.supervisor import Supervisor


def after(
    result: launches.LaunchResult, supervisor: Supervisor, end_all: Callable[[], bool]
) -> launches.LaunchResult:
    """Run the workers again after a first attempt, as long as the budget of restarts allows it.

    `end_all` kills what workers have left; False: something of it stays.
    """
    launch, used = supervisor.launch, 0  # of the restarts that are allowed
    request = launch.request
    most, window_s, final = (
        request.max_restarts, request.restart_window_s, request.no_restart_status
    )  # fmt: skip
    while result.cause is not None:
        rules = supervisor.rules
        more = failures.used_after(result.cause, used, most, window_s, final)
        if result.status in final and used < most and not rules.was_told_to_end:
            supervisor.output.say([_why_not(result.status, final, most - used, most)])
        if more is None or rules.is_told_later or not end_all() or supervisor.listen_for_end():
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
        if supervisor.journal:
            supervisor.journal.tell("restart", words=words)
        result = supervisor.run(workers)._replace(restarted=before)
    return result


def _why_not(status: int, final: frozenset[int], left: int, most: int) -> str:
    others = ",".join(map(str, sorted(final - {status}))) or "''"
    return (
        f"no restart after status {status}, though {left} of {most} are left; to have one, type "
        f"--no-restart-status {others}"
    )
