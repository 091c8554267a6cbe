"""A launcher that cannot take part tells the other nodes' launchers before it ends.

They would wait for it until join_timeout. It tells the hub the status with which it ends, and why;
while there is no hub yet, it tries for some seconds. If it was to have the hub itself, it listens
for as long, and tells the launchers that connect. A launcher that has neither the run's name nor
its token is not believed. One whose command line cannot be read does not know where they meet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from spawnlaunch.base import errors, events, machine, say
from spawnlaunch.cli import flags, parsing
from spawnlaunch.outcome import failures
from spawnlaunch.world import identity, resolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from spawnlaunch.multinode import messages
    from spawnlaunch.workers import launches

SAID_S = 1.0  # a longer message is printed
TURN_S = 0.25
NEAR_S = 10.0  # for the hub to be found
MOST_S = 2 * NEAR_S  # in which it runs: a stopped launcher has still to tell the hub


def tell(
    argv: Sequence[str], environ: Mapping[str, str], status: int, words: str, signum: int = 0
) -> bool:
    """Tell the other launchers of this command line's launch; the result is whether one knows.

    The caller has printed why this one ends; what is wrong here is not printed.
    """
    with suppress(Exception):
        request = parsing.parse(argv, environ, "")._replace(nproc=1)  # how many does not matter
        for each in (request, request._replace(node_rank=None)):
            with suppress(errors.UsageError):
                name, capacity = machine.uname().nodename, identity.Capacity(0, 1)
                resolution = resolve.resolve_world(each, environ, name, capacity)
                return _tell(each, resolution, environ, status, words, signum)
    return False


def tell_of(launch: launches.Launch, status: int, words: str, signum: int = 0) -> None:
    """Tell the other launchers of a launch that has had no workers."""
    with suppress(OSError):
        _tell(launch.request, launch.resolution, launch.environ, status, words, signum)


def _tell(
    request: flags.Request,
    resolution: identity.Resolution,
    environ: Mapping[str, str],
    status: int,
    words: str,
    signum: int,
) -> bool:
    """Tell the others, if there are any; that takes milliseconds where they are there."""
    gathering, run_id = resolution.gathering, resolution.world.run_id
    if gathering is None or request.explain:
        return False
    from spawnlaunch.multinode import link, messages  # most launches are of one node
    from spawnlaunch.multinode.server import Server
    from spawnlaunch.multinode.settings import settings_of

    settings = settings_of(request, gathering, request.grace_s, request.failure_grace_s)
    who, loop = machine.urandom(8).hex(), events.Loop()
    try:
        endpoint = link.endpoint_of(gathering, run_id, request, environ, settings.lost_after_s)
        end = machine.running_s() + NEAR_S
        if not (found := endpoint.look_up(loop, lambda: machine.running_s() >= end)):
            return False
    except (errors.UsageError, OSError):
        return False  # it would not be believed, or the others cannot find the hub either
    where = f"{gathering.host}:{gathering.port}"
    telling = f"telling the other launchers, which meet at {where}: up to {NEAR_S:g} s"
    loop.alarm(lambda: say.say([telling]), SAID_S)
    cause = failures.Cause("unable", gathering.name, code=status, words=words)
    if gathering.is_hub is not False:
        if gathering.is_restarted:  # the others wait for the launcher that is started next
            return False
        here = endpoint._replace(ports=1) if gathering.is_hub is None else endpoint
        with suppress(OSError):  # another launcher of this machine has the hub, or none can
            server = Server(loop, here, settings, who, lambda _: None, found=found)
            signal = failures.Cause("signal", gathering.name, code=-signum)
            server.hub.end_unmet(signal if signum else cause)
            _turn_until(loop, lambda: server.is_over)
            server.close()
            return server.hub.late <= 0
    report = messages.Report(
        gathering.name,
        who,
        nproc=1,
        rank=gathering.node_rank,
        is_restarted=gathering.is_restarted,
        state=messages.READY if signum else messages.UNABLE,
        leaving=signum,
        cause=None if signum else cause,
        flags=settings.flags,
    )
    speaker = Speaker()
    link.Link(loop, endpoint, report, NEAR_S, speaker).look()
    _turn_until(loop, lambda: speaker.is_over)
    return speaker.is_over and not speaker.found_no_hub


def _turn_until(loop: events.Loop, is_over: Callable[[], bool]) -> None:
    end = machine.running_s() + MOST_S
    while not is_over() and machine.running_s() < end:
        loop.turn(TURN_S)


class Speaker:
    """A launcher that has no workers, and ends as soon as the hub has got its Report."""

    def __init__(self) -> None:
        self.is_over = self.found_no_hub = False

    def exit(self, _: int, cause: failures.Cause | None) -> None:
        self.is_over = True
        is_absent = cause is not None and cause.kind == "absent"
        self.found_no_hub = is_absent and cause.words.startswith("the hub")  # type: ignore[union-attr]

    def launch(self, order: messages.Order) -> None: ...
    def halt(self, cause: failures.Cause, grace_s: float) -> None: ...
    def show_stacks(self) -> None: ...
    def tell(self, line: str) -> None: ...
