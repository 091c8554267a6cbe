"""A launcher that cannot take part in a launch of several nodes announces this before it ends.

The others would wait for it until join_timeout. It tells the hub the status with which it ends, and
why; while there is no hub yet, it tries for some seconds. If it was to have the hub itself, it
listens for as long, and tells the launchers that connect. A launcher that has neither the run's
name nor its token is not believed.

The place where they meet is read from the flags and the environment as far as these can be read: an
error in one flag says nothing about the others. Where there are no other launchers, little is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from spawnlaunch.base import errors, events, machine, say
from spawnlaunch.cli import parsing, values
from spawnlaunch.cli.flags import FlagValue, Program, Request
from spawnlaunch.outcome import failures
from spawnlaunch.world import identity, resolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from spawnlaunch.workers import launches  # not at run time: typing may be missing

# Fields of Request that say where launchers meet. Without any of the first their place is unknown.
NAMING = ("rdzv_endpoint", "rdzv_id", "master_addr", "master_port", "master_suffix", "token_file")
FIELDS = frozenset((
    *NAMING, "nproc", "nnodes", "node_rank", "spares", "rdzv_backend", "rdzv_conf", "max_restarts",
    "no_gang", "standalone", "explain", "lost_after_s",
))  # fmt: skip

NOTE_S = 1.0  # an announcement that takes longer is printed


def announce(
    argv: Sequence[str], environ: Mapping[str, str], status: int, words: str, signum: int = 0
) -> bool:
    """Tell the other launchers of this command line that this one ends, with a status or a signal.

    The result is whether one of them knows. The caller has printed why this launcher ends; what the
    system refuses here is not printed.
    """
    with suppress(OSError):
        request = _readable(argv, environ)
        resolution = request and _resolved(request, environ)
        if request and resolution:
            return _announce(request, resolution, environ, status, words, signum)
    return False


def announce_for(launch: launches.Launch, status: int, words: str, signum: int = 0) -> None:
    """Tell the other launchers of a launch that has had no workers that this one ends."""
    with suppress(OSError):
        _announce(launch.request, launch.resolution, launch.environ, status, words, signum)


def _announce(
    request: Request,
    resolution: identity.Resolution,
    environ: Mapping[str, str],
    status: int,
    words: str,
    signum: int,
) -> bool:
    """Tell the hub, or the launchers that connect; the result is whether that was done.

    Takes some milliseconds where they are there, else about `NEAR_S` seconds.
    """
    gathering, run_id = resolution.gathering, resolution.world.run_id
    if gathering is None:
        return False
    from spawnlaunch.multinode import (  # most launches are of one node
        link,
        messages,
        phases,
        server,
    )
    from spawnlaunch.multinode.settings import settings_of

    settings = settings_of(request, gathering, request.grace_s, request.failure_grace_s)
    launcher_id, loop = machine.urandom(8).hex(), events.Loop()
    try:
        endpoint = link.endpoint_of(gathering, run_id, request, environ, settings.lost_after_s)
        end = machine.running_s() + phases.NEAR_S
        addresses = endpoint.look_up(loop, lambda: machine.running_s() >= end)
        if not addresses:
            return False
    except (errors.UsageError, OSError):
        return False  # it would not be believed, or the others cannot find the hub either
    where = f"{gathering.host}:{gathering.port}"
    note = f"telling the other launchers, which meet at {where}: up to {phases.NEAR_S:g} s"
    loop.alarm(lambda: say.say([note]), NOTE_S)
    if gathering.is_hub is not False:
        if gathering.is_restarted:  # the others wait for the launcher that is started next
            return False
        here = endpoint._replace(ports=1) if gathering.is_hub is None else endpoint
        with suppress(OSError):  # another launcher of this machine has the hub, or none can
            hub = server.Server(
                loop, here, settings, launcher_id, lambda _: None,
                addresses=addresses, clock=machine.running_s,
            )  # fmt: skip
            cause = failures.Cause("unable", gathering.name, code=status, words=words)
            if signum:
                cause = failures.Cause("signal", gathering.name, code=-signum)
            hub.hub.end_unmet(cause)
            _turn_until(loop, lambda: hub.is_over)
            hub.close()
            return hub.hub.unconnected_count <= 0
    hello = messages.Hello(
        gathering.name,
        launcher_id,
        nproc=1,
        given_node_rank=gathering.node_rank,
        port=gathering.port,  # no worker of this one will listen anywhere
        end_signal=signum,
        status=0 if signum else status,
        words=words,
        is_restarted=gathering.is_restarted,
    )
    sender = Sender()
    link.Link(loop, endpoint, hello, phases.NEAR_S, sender, machine.running_s).member.begin()
    _turn_until(loop, lambda: sender.is_over)
    absent = sender.cause.words if sender.cause and sender.cause.kind == "absent" else ""
    return sender.is_over and not absent.startswith("the hub")


def _turn_until(loop: events.Loop, is_over: Callable[[], bool]) -> None:
    from spawnlaunch.multinode import link, phases

    # A stopped launcher has still to tell the hub.
    end = machine.running_s() + 2 * phases.NEAR_S
    while not is_over() and machine.running_s() < end:
        loop.turn(link.TURN_S)


class Sender:
    """The launcher of a member without workers, which ends as soon as the hub has the message."""

    def __init__(self) -> None:
        self.is_over = False
        self.cause: failures.Cause | None = None

    def exit(self, _: int, cause: failures.Cause | None) -> None:
        self.is_over, self.cause = True, cause

    def launch(self, start: object) -> None: ...
    def halt(self, _: failures.Cause, grace_s: float) -> None: ...
    def show_stacks(self) -> None: ...
    def print_line(self, line: str) -> None: ...
    def seek_hub(self, why: str, left_s: float) -> None: ...
    def await_hub(self, limit_s: float) -> None: ...


def _readable(argv: Sequence[str], environ: Mapping[str, str]) -> Request | None:
    """The flags that say where launchers meet; None where that cannot be known."""
    from spawnlaunch.cli import torchrun

    fields: dict[str, Any] = {}
    typed, _ = parsing.read_flags(argv, lenient=True)
    exported: list[FlagValue] = []
    with suppress(errors.UsageError):
        exported.extend(torchrun.flags_of_variables(environ, typed))
    for flag, text, name in (*exported, *typed):
        if flag.field not in FIELDS:
            continue
        try:
            is_nproc = flag.field == "nproc"  # how many does not matter
            fields[flag.field] = 1 if is_nproc else parsing.read_value(flag, text, name)
        except errors.UsageError:
            if flag.field in NAMING:
                return None
            if flag.field == "nnodes":
                fields["nnodes"] = values.nnodes("2")
        if flag.field == "node_rank":  # the backend follows from any value of it
            fields.setdefault("rdzv_backend", "static")
    if fields.get("explain"):
        return None
    return Request(program=Program("script", "", ()), python="", **fields)


def _resolved(request: Request, environ: Mapping[str, str]) -> identity.Resolution | None:
    """The resolution of these flags; sizes are left out where they contradict each other."""
    ranked = request._replace(node_rank=None)
    fewer = ranked._replace(nnodes=None, spares=0)
    for each in (request, ranked, fewer, fewer._replace(nnodes=values.nnodes("2"))):
        with suppress(errors.UsageError):
            resolution = resolve.resolve_world(
                each, environ, machine.uname().nodename, identity.Capacity(0, 1)
            )
            if resolution.gathering or each is request:
                return resolution
    return None
