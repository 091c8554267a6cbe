"""A launcher that cannot take part in a launch of several nodes: how it finds the others.

They would wait for it until join_timeout; `telling` tells them. The place where they meet is looked
for in the flags and in the environment as far as these can be read: an error in one flag says
nothing about the others. Where there are no other launchers, little is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from spawnlaunch.base import errors, machine
from spawnlaunch.cli import parsing, values
from spawnlaunch.cli.flags import FlagValue, Program, Request
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


def tell(argv: Sequence[str], environ: Mapping[str, str], *how: Any) -> bool:
    """Tell the other launchers of this command line's launch; the result is whether one knows.

    `how` this one ends is its status, the words, and the signal if it ends by one.

    The caller has printed why this one ends; what the system refuses here is not printed.
    """
    with suppress(OSError):
        request = _readable(argv, environ)
        resolution = request and _resolved(request, environ)
        if request and resolution and resolution.gathering:
            return _tell(request, resolution, environ, *how)
    return False


def tell_of(launch: launches.Launch, *how: Any) -> None:
    """Tell the other launchers of a launch that has had no workers."""
    with suppress(OSError):
        if launch.resolution.gathering:
            _tell(launch.request, launch.resolution, launch.environ, *how)


def _tell(*what: Any) -> bool:
    from spawnlaunch.run import telling  # most launches are of one node

    return telling.tell(*what)


def _readable(argv: Sequence[str], environ: Mapping[str, str]) -> Request | None:
    """The flags that say where launchers meet; None where that cannot be known."""
    said: dict[str, Any] = {}
    typed, _ = parsing.read_flags(argv, lenient=True)
    for flag, text, name in (*_exported(environ, typed), *typed):
        if flag.field not in FIELDS:
            continue
        try:
            is_nproc = flag.field == "nproc"  # how many does not matter
            said[flag.field] = 1 if is_nproc else parsing.read_value(flag, text, name)
        except errors.UsageError:
            if flag.field in NAMING:
                return None
            if flag.field == "nnodes":
                said["nnodes"] = values.nnodes("2")
        if flag.field == "node_rank":  # the backend follows from any value of it
            said.setdefault("rdzv_backend", "static")
    if said.get("explain"):
        return None
    return Request(program=Program("script", "", ()), python="", **said)


def _exported(environ: Mapping[str, str], typed: Sequence[FlagValue]) -> list[FlagValue]:
    from spawnlaunch.cli import torchrun

    given: list[FlagValue] = []
    with suppress(errors.UsageError):
        given.extend(torchrun.flags_of_variables(environ, typed))
    return given


def _resolved(request: Request, environ: Mapping[str, str]) -> identity.Resolution | None:
    """The resolution of these flags; sizes are left out where they contradict each other."""
    alone = request._replace(node_rank=None)
    fewer = alone._replace(nnodes=None, spares=0)
    for each in (request, alone, fewer, fewer._replace(nnodes=values.nnodes("2"))):
        with suppress(errors.UsageError):
            found = resolve.resolve_world(
                each, environ, machine.uname().nodename, identity.Capacity(0, 1)
            )
            if found.gathering or each is request:
                return found
    return None
