"""A launcher that cannot take part tells the other nodes' launchers before it ends.

It tells the hub the status with which it ends, and why; while there is no hub yet, it tries for
some seconds. If it was to have the hub itself, it listens for as long, and tells the launchers that
connect. The rules are the gang's (`hub`, `member`): a launcher that has neither the run's name nor
its token is not believed.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Mapping
from functools import partial

from spawnlaunch.base import errors, events, machine, say
from spawnlaunch.cli import flags
from spawnlaunch.gang import link, messages, phases
from spawnlaunch.gang.server import Server
from spawnlaunch.gang.settings import settings_of
from spawnlaunch.outcome import failures
from spawnlaunch.world import identity, lookup

SAID_S = 1.0  # a longer message is printed
TURN_S = 0.25
MOST_S = 2 * phases.NEAR_S  # in which it runs: a stopped launcher has still to tell the hub


def tell(
    request: flags.Request,
    resolution: identity.Resolution,
    environ: Mapping[str, str],
    status: int,
    words: str,
    signum: int = 0,
) -> bool:
    """Tell the other launchers that this one ends with a status, or by a signal.

    The launch must have other launchers. The result is whether the hub knows it.

    Takes some milliseconds where they are there, else about `NEAR_S` seconds.
    """
    gathering, run_id = resolution.gathering, resolution.world.run_id
    assert gathering is not None
    settings = settings_of(request, gathering, request.grace_s, request.failure_grace_s)
    who = machine.urandom(8).hex()
    try:
        endpoint = link.endpoint_of(gathering, run_id, request, environ, settings.lost_after_s)
        found = _found(endpoint)
    except (errors.UsageError, OSError):
        return False  # it would not be believed, or the others cannot find the hub either
    loop = events.Loop()
    where = f"{gathering.host}:{gathering.port}"
    telling = f"telling the other launchers, which meet at {where}: up to {phases.NEAR_S:g} s"
    loop.alarm(lambda: say.say([telling]), SAID_S)
    if gathering.is_hub is not False:
        if gathering.again:  # the others wait for the launcher that is started next
            return False
        here = endpoint._replace(ports=1) if gathering.is_hub is None else endpoint
        try:
            server = Server(
                loop, here, settings, who, lambda _: None, found=found, clock=machine.running_s
            )
        except OSError:  # another launcher of this machine has the hub, or none can
            pass
        else:
            cause = failures.Cause("unable", gathering.name, code=status, words=words)
            if signum:
                cause = failures.Cause("signal", gathering.name, code=-signum)
            return _listen(loop, server, cause)
    hello = messages.Hello(
        messages.VERSION,
        gathering.name,
        who,
        nproc=1,
        rank=gathering.node_rank,
        port=gathering.port,  # no worker of this one will listen anywhere
        leaving=signum,
        status=0 if signum else status,
        words=words,
        again=gathering.again,
    )
    return Speaker(loop, endpoint, hello).speak()


def _found(endpoint: link.Endpoint) -> list[lookup.Found]:
    """The endpoint's addresses, if the lookup takes little time. Raises OSError."""
    if lookup.numeric(endpoint.host, endpoint.port) or not lookup.HAS_CHILDREN:
        return []
    ask = partial(lookup.find, (endpoint.host,), endpoint.port)
    asked, poller = lookup.Lookup(ask), machine.poll()
    poller.register(asked.fd, select.POLLIN)
    if not poller.poll(phases.NEAR_S * 1000):
        asked.end()
        raise OSError("nobody says where it is")
    return asked.found()


def _listen(loop: events.Loop, server: Server, cause: failures.Cause) -> bool:
    server.hub.end_unmet(cause)
    _turn_until(loop, lambda: server.is_over)
    server.close()
    return server.hub.late <= 0


def _turn_until(loop: events.Loop, is_over: Callable[[], bool]) -> None:
    end = machine.running_s() + MOST_S
    while not is_over() and machine.running_s() < end:
        loop.turn(TURN_S)


class Speaker:
    """A member that has no workers, and ends as soon as the hub has got its message."""

    def __init__(self, loop: events.Loop, endpoint: link.Endpoint, hello: messages.Hello) -> None:
        self._loop = loop
        self._is_over = False
        self._cause: failures.Cause | None = None
        its = link.Link(loop, endpoint, hello, phases.NEAR_S, self, machine.running_s)
        self._member = its.member

    def speak(self) -> bool:
        """Send the message; the result is whether the hub has got it."""
        self._member.begin()
        _turn_until(self._loop, lambda: self._is_over)
        absent = self._cause.words if self._cause and self._cause.kind == "absent" else ""
        return self._is_over and not absent.startswith("the hub")

    def exit(self, _: int, cause: failures.Cause | None) -> None:
        self._is_over, self._cause = True, cause

    def launch(self, start: object) -> None: ...
    def halt(self, _: failures.Cause, grace_s: float) -> None: ...
    def show_stacks(self) -> None: ...
    def tell(self, line: str) -> None: ...
    def await_hub(self, limit_s: float) -> None: ...
