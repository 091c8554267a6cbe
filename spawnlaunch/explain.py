"""--explain: every derived value, where it came from, and what would be started."""

from collections.abc import Iterator, Mapping, Sequence
from shlex import join
from typing import Any

from spawnlaunch.run.environment import changes
from spawnlaunch.run.worker import Worker
from spawnlaunch.world import Resolution
from spawnlaunch.world.facts import Fact


def as_json(
    resolution: Resolution,
    workers: Sequence[Worker],
    warnings: Sequence[str],
    environ: Mapping[str, str],
) -> dict[str, Any]:
    """The explanation for programs.

    Keys: mode; world, the fields of World but the mode; sources, for each of them value, source and
    lost candidates; workers, each with rank, local_rank, env (what it does not inherit) and
    command; warnings.
    """
    world = resolution.world._asdict()
    return {
        "mode": world.pop("mode"),
        "world": world,
        "sources": {name: _source(fact) for name, fact in resolution.sources.items()},
        "workers": [
            {
                "rank": worker.rank,
                "local_rank": worker.local_rank,
                "env": changes(worker.environ, environ),
                "command": list(worker.command),
            }
            for worker in workers
        ],
        "warnings": list(warnings),
    }


def _source(fact: Fact) -> dict[str, Any]:
    return {
        "value": fact.value,
        "source": fact.source,
        "lost": [lost._asdict() for lost in fact.lost],
    }


def as_text(
    resolution: Resolution,
    workers: Sequence[Worker],
    warnings: Sequence[str],
    environ: Mapping[str, str],
) -> Iterator[str]:
    """The explanation for people, line by line."""
    managers = ", ".join(manager.name for manager in resolution.managers) or "none"
    yield f"resource manager  {managers}"
    for name, fact in resolution.sources.items():
        value = "unknown" if fact.value is None else fact.value
        yield f"{name:16}  {value!s:20}  {fact.source}"
        for lost in fact.lost:
            yield f"{'':16}    not {lost.value} from {lost.source}: {lost.why}"
    for worker in workers:
        yield ""
        yield f"rank {worker.rank}  local {worker.local_rank}  {join(worker.command)}"
        for name, value in changes(worker.environ, environ).items():
            yield f"    {name}={value}"
    if warnings:
        yield ""
    for warning in warnings:
        yield f"warning: {warning}"
