"""The times of each worker's last output, which a guard publishes for spawnlaunch.top.

They are in a file without a name in memory (memfd_create(2)), in a slot for each worker: pid, time
(monotonic clock, seconds) and rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from spawnlaunch.base import machine, say
from spawnlaunch.output import pipes

TOLD, SLOT_BYTES = "spawnlaunch-said", 64


def publish(
    file: int | None, sources: Sequence[pipes.Source], pids: Mapping[int, int]
) -> int | None:
    """Have these sources publish times for the workers with these pids, by rank.

    The result is the file; `file` is that of an earlier attempt. None: no such file can be made,
    and only `top` shows less.
    """
    if not hasattr(machine, "memfd_create"):
        return None
    try:
        file = machine.memfd_create(TOLD) if file is None else file
        machine.ftruncate(file, 0)
    except OSError as error:
        say.say([f"the system refuses files in memory ({error.strerror}): spawnlaunch.top cannot "
                 "show when ranks said something last"])  # fmt: skip
        return None
    sources = sorted(sources, key=lambda each: each.last_read)
    for slot, (rank, pid) in enumerate(pids.items()):
        for source in sources:  # the source that was read last publishes last
            if source.rank == rank and source.is_open:
                source.tell(partial(_tell, file, slot, pid, rank))
    return file


def _tell(file: int, slot: int, pid: int, rank: int, when: float) -> None:
    when += machine.monotonic() - machine.running_s()
    with suppress(OSError):
        machine.pwrite(
            file, f"{pid} {when:.3f} {rank}".ljust(SLOT_BYTES).encode(), slot * SLOT_BYTES
        )
