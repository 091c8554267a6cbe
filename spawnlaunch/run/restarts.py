"""The workers of one node, started once more after a failure: whether, and how."""

from __future__ import annotations

from spawnlaunch import errors, failures, records
from spawnlaunch.run import say, starting
from spawnlaunch.world import host

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from spawnlaunch.run import launches
    from spawnlaunch.run.supervisor import Supervisor


class Budget(records.NamedTuple):
    """The restarts that the user allows; after `window_s` of health all of them are left again."""

    most: int = 0
    window_s: float = 0.0  # of health, after which nothing of the budget is used; 0: never
    final: frozenset[int] = frozenset()  # exit statuses of a first failure that end the launch


class Tally(records.NamedTuple):
    """The restarts so far."""

    total: int = 0  # TORCHELASTIC_RESTART_COUNT
    used: int = 0  # of the budget


def restarted(tally: Tally, budget: Budget, cause: failures.Cause) -> Tally | None:
    """The tally with one more restart; None: the launch ends with what it has."""
    if cause.kind not in failures.FAULTS or cause.status() in budget.final:
        return None
    used = 0 if 0 < budget.window_s <= cause.after_s else tally.used
    return Tally(tally.total + 1, used + 1) if used < budget.most else None


def after(
    result: launches.LaunchResult, supervisor: Supervisor, end_all: Callable[[], bool]
) -> launches.LaunchResult:
    """Run the workers again after a first attempt, as long as the budget of restarts allows it.

    `end_all` kills what workers have left; False: something of it stays.
    """
    launch, tally = supervisor.launch, Tally()
    request = launch.request
    budget = Budget(request.max_restarts, request.restart_window_s, request.no_restart_status)
    while result.cause is not None:
        rules = supervisor.rules
        more = None if rules.is_told_later else restarted(tally, budget, result.cause)
        is_final = result.status in budget.final and tally.used < budget.most
        if is_final and not rules.was_told_to_end:
            others = ",".join(map(str, sorted(budget.final - {result.status}))) or "''"
            supervisor.output.say([
                f"no restart after status {result.status}, though {budget.most - tally.used} of "
                f"{budget.most} are left; to have one, type --no-restart-status {others}"
            ])  # fmt: skip
        if more is None or not end_all() or supervisor.listen_for_end():
            break
        try:
            resolution, held_port = host.renew_port(launch.resolution, launch.environ)
            launch = launch._replace(resolution=resolution, held_port=held_port)
            workers = starting.make_workers(launch, more.total)
            starting.prepare_files(workers, launch.scratch, restart=more.total)
        except errors.UsageError as error:
            say.say([f"cannot restart: {error}"])
            break
        in_all = "" if more.total == more.used else f" (in all {more.total})"
        words = f"{result.cause.in_words}: restart {more.used} of {budget.most}{in_all}"
        supervisor.output.say([words])
        if supervisor.journal:
            supervisor.journal.tell("restart", words=words)
        before, tally = (*result.restarted, result.cause), more
        result = supervisor.run(workers)._replace(restarted=before)
    return result
