"""Find the launches of this user on this machine, without help from the launchers.

A rank is a process whose environment has RANK, LOCAL_RANK and WORLD_SIZE, and whose parent is not
of the same rank: children of a worker inherit its environment. So any launcher may have started it:
spawnlaunch with a launcher or in task mode, torchrun, or srun with variables of one's own. A
process that was started by torch.multiprocessing.spawn sets them later, which no other process can
see; but its children have them, and so reveal the rank.

Ranks belong to the same launch by the mark that spawnlaunch gives them; else by run id, address and
port. A worker that was forked from the image of --preload shows its own environment too
(show_environment in machine.py).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from spawnlaunch.base import reading
from spawnlaunch.node import proc
from spawnlaunch.workers import environment

ATTEMPT = "TORCHELASTIC_RESTART_COUNT"
CONTRACT = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
YOUNG_S = 60  # a process may call exec, as a worker does, and have another environment then
NAMED = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")


class Rank(NamedTuple):
    """The process of a rank, and its descendants."""

    launch: str  # which launch it is of: the same for all its ranks here
    job: str  # the same for those on other nodes as well
    rank: int
    local_rank: int
    world_size: int
    pid: int
    start: int  # clock ticks since boot: with the pid, this process and no other
    parent: int
    below: tuple[int, ...]  # pids of its descendants, as DataLoader workers
    environ: Mapping[str, str]


class RankFinder:
    """A search for ranks, again and again; an environment is read while a process is new."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], Mapping[str, str] | None] = {}

    def ranks(self) -> list[Rank]:
        """All ranks of this user on this machine, those of a launch together and in their order."""
        living = {each.pid: each for each in proc.everything() if not each.dead}
        environs = self._environs({(each.pid, each.start) for each in living.values()})
        children: dict[int, list[int]] = {}
        for each in living.values():
            children.setdefault(each.parent, []).append(each.pid)
        for pid in [*environs]:
            parent = living[pid].parent
            if parent in living and parent not in environs and is_spawned(parent):
                environs[parent] = environs[pid]
        ranks = [
            _rank(each, environs[each.pid], tuple(_below(each.pid, children)))
            for each in living.values()
            if each.pid in environs
            and _identity(environs[each.pid]) != _identity(environs.get(each.parent))
        ]
        # The descendants of an ended worker have the same rank as the worker of the next attempt.
        ranks.sort(key=lambda rank: (rank.environ.get(ATTEMPT, "").zfill(9), -rank.start))
        first = {(rank.launch, rank.rank): rank for rank in ranks}
        return sorted(first.values(), key=lambda rank: (rank.launch, rank.rank))

    def _environs(self, processes: set[tuple[int, int]]) -> dict[int, Mapping[str, str]]:
        """The environments of those processes that may be a rank's, by pid."""
        self._known = {key: known for key, known in self._known.items() if key in processes}
        now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        young = (now_s - YOUNG_S) * os.sysconf("SC_CLK_TCK")
        for pid, start in processes:
            if (pid, start) not in self._known or start > young:
                self._known[pid, start] = _environ(pid)
        return {pid: environ for (pid, _), environ in self._known.items() if environ}


def _environ(pid: int) -> Mapping[str, str] | None:
    """The environment of a rank's process; None for another process, or another user's."""
    try:
        if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
            return None
    except OSError:
        return None
    environ = proc.environ(pid) or {}
    return environ if all(reading.is_number(environ.get(name, "")) for name in CONTRACT) else None


def is_spawned(pid: int) -> bool:
    """Whether Python's multiprocessing has started the process as a new program."""
    return "--multiprocessing-fork" in (proc.read(pid, "cmdline") or "").split("\0")


def _identity(environ: Mapping[str, str] | None) -> tuple[str, str] | None:
    return (launch_of(environ), environ["RANK"]) if environ else None


def launch_of(environ: Mapping[str, str]) -> str:
    """The launch of a rank, by its environment: the same text in all its ranks here."""
    return environ.get(environment.MARK, "").rpartition(".")[0] or _job_of(environ)


def starter_of(environ: Mapping[str, str]) -> str:
    """The program that has started a rank.

    torchrun's agent sets True for its store, we set False.
    """
    if environ.get("TORCHELASTIC_USE_AGENT_STORE") == "False" or environment.MARK in environ:
        return "spawnlaunch"
    return "torchrun" if NAMED[0] in environ else "another launcher"


def _job_of(environ: Mapping[str, str]) -> str:
    return " ".join(filter(None, (environ.get(name) for name in NAMED))) or "unnamed"


def _rank(process: proc.Process, environ: Mapping[str, str], below: tuple[int, ...]) -> Rank:
    rank, local_rank, world_size = (int(environ[name]) for name in CONTRACT)
    return Rank(
        launch=launch_of(environ),
        job=_job_of(environ),
        rank=rank,
        local_rank=local_rank,
        world_size=world_size,
        pid=process.pid,
        start=process.start,
        parent=process.parent,
        below=below,
        environ=environ,
    )


def _below(pid: int, children: Mapping[int, Iterable[int]]) -> Iterable[int]:
    for child in children.get(pid, ()):
        yield child
        yield from _below(child, children)
