"""Parse and format sets of CPUs as the kernel's lists and masks.

    48-55,112-119    a list: ranges and single CPUs, sorted (local_cpulist, sched_setaffinity(2))
    00ff0000,00000000,00ff0000,00000000
                     a mask: 32-bit words in hexadecimal, the highest first (local_cpus, cpumap)
    0xfe000000000000 the same without commas (srun --cpu-bind=mask_cpu)

Sources: Documentation/admin-guide/kernel-parameters.rst, "cpu lists", and lib/bitmap-str.c of the
kernel; "--cpu-bind" in srun(1). NUMA nodes are written in the same way and read by the same code.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from spawnlaunch.base import reading

CpuSet = frozenset[int]

EMPTY: CpuSet = frozenset()
NODE_CPUS = "SPAWNLAUNCH_NODE_CPUS"  # of all ranks of a node, in the environment of each
LARGEST = 1 << 20  # far above the kernel's NR_CPUS; a mistyped number must not fill the memory


class CpuSetError(ValueError):
    """A text is no list or mask of CPUs; the message has the text and the expected form."""


def parse(text: str) -> CpuSet:
    """The CPUs of a list such as `0-3,8`; an empty text is the empty set.

    Raises CpuSetError.
    """
    cpus: set[int] = set()
    for item in text.replace(",", " ").split():
        try:
            cpus.update(_range(item))
        except ValueError:
            raise CpuSetError(
                f"{reading.excerpt(item)} in {reading.excerpt(text.strip())} is not a CPU or a "
                "range of CPUs; a list looks like 0-3,8"
            ) from None
    return frozenset(cpus)


def _range(item: str) -> range:
    """The CPUs of one item: `8` or `0-3`. Raises ValueError."""
    first, dash, last = item.partition("-")
    ends = (first, last if dash else first)
    # int() accepts `+1`, `1_0` and spaces too, and refuses 5,000 digits.
    if not all(map(reading.is_number, ends)) or not int(first) <= int(ends[1]) < LARGEST:
        raise ValueError
    return range(int(first), int(ends[1]) + 1)


def parse_mask(text: str) -> CpuSet:
    """The CPUs of a mask: hexadecimal words with or without commas and 0x; raises CpuSetError."""
    words = text.strip().lower().removeprefix("0x").split(",")
    try:
        # Each word after the first has 32 bits, even if it has fewer than 8 digits.
        bits = int("".join([words[0], *(word.zfill(8) for word in words[1:])]), 16)
    except ValueError:
        bits = -1
    if bits < 0 or bits >> LARGEST or "_" in text:
        raise CpuSetError(
            f"{reading.excerpt(text.strip())} is not a CPU mask; a mask looks like 0xff00 or "
            "00000000,0000ff00"
        )
    return frozenset(i for i, bit in enumerate(reversed(f"{bits:b}")) if bit == "1")


def format(cpus: Iterable[int]) -> str:
    """Return the list as the kernel writes it, such as `0-3,8`; empty for the empty set."""
    spans: list[list[int]] = []
    for cpu in sorted(cpus):
        if spans and cpu == spans[-1][1] + 1:
            spans[-1][1] = cpu
        else:
            spans.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def format_mask(cpus: Iterable[int]) -> str:
    """Return the mask as srun accepts it, such as `0xff00`."""
    return f"{sum(1 << cpu for cpu in frozenset(cpus)):#x}"


@contextmanager
def node_cpus() -> Iterator[None]:
    """Let the calling thread use the CPUs of all ranks of this node within the context.

        with spawnlaunch.node_cpus():
            dataset = dataset.map(tokenize, num_proc=len(os.sched_getaffinity(0)))

    It is for work that one rank does while the others wait; processes that the thread starts have
    these CPUs too. Threads that run already keep their CPUs, as those of torch's pool do. Under
    another launcher nothing changes.
    """
    cpus = os.environ.get(NODE_CPUS, "")
    before = os.sched_getaffinity(0) if cpus and hasattr(os, "sched_getaffinity") else None
    if before is None:
        yield
        return
    with suppress(OSError, ValueError):  # the cpuset has changed, or another program set this
        os.sched_setaffinity(0, parse(cpus) | before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
