"""Machines as their sites and vendors publish them, or as somebody captured them: their facts.

`machines.LUMI` is one of `machines.json`, a `tree.Machine`; `tree.build` lays it out as files of
/sys and /proc. What the source does not say is invented: memory sizes, most distances, and PCI
addresses where there is none.

A fact that is a number means as many equal groups of neighbouring cores ("numa": 4). Threads of a
core are `apart` CPU numbers from each other: by default all first threads come before all second
ones. Of a device: its address, its NUMA node, the CPUs next to it (those of the node where they
are left out), and the NUMA node that is its memory; or the NUMA node alone.
"""

import json
from pathlib import Path
from typing import Any

from spawnlaunch.base import cpuset
from spawnlaunch.base.cpuset import CpuSet
from tests.machines.tree import Gpu, Machine

Facts = dict[str, Any]

_FACTS: dict[str, dict[str, Facts]] = json.loads(
    Path(__file__).with_name("machines.json").read_text()
)


def machine(facts: Facts, published: dict[str, Facts]) -> Machine:
    """The machine that these facts describe; they may be "like" those of a published one."""
    if "like" in facts:
        facts = published[facts["like"]] | facts
    cores = _cores(cpuset.parse(facts["cpus"]), facts.get("threads", 1), facts.get("apart"))
    numa = facts["numa"]
    if isinstance(numa, int):
        numa = dict(enumerate(_groups(numa, cores)))
    homes = {int(node): cpus for node, cpus in numa.items()}
    alone = {
        node: kib
        for nodes, kib in facts.get("without_cpus", {}).items()
        for node in sorted(cpuset.parse(nodes))
    }
    return Machine(
        name=facts["name"],
        source=facts["source"],
        cores=tuple(map(cpuset.format, cores)),
        numa=homes | dict.fromkeys(alone, ""),
        l3=_groups(facts["l3"], cores),
        packages=_groups(facts["packages"], cores),
        gpus=tuple(
            _gpu(kind, device, homes, facts)
            for kind, devices in facts.get("devices", {}).items()
            for device in devices
        ),
        offline=facts.get("offline", ""),
        reserved=facts.get("reserved", ""),
        memory_kib=alone,
        distances={int(node): row for node, row in facts.get("distances", {}).items()},
        adapters=facts.get("adapters", {}),
        files=facts.get("files", {}),
        without=tuple(facts.get("without", ())),
    )


def _cores(cpus: CpuSet, threads: int, apart: int | None) -> list[CpuSet]:
    """The cores in the order of their first CPU."""
    distance = apart or len(cpus) // threads
    cores: dict[int, CpuSet] = {}
    for cpu in sorted(cpus):
        core = cpu if threads == 1 else cpu // threads if distance == 1 else cpu % distance
        cores[core] = cores.get(core, cpuset.EMPTY) | {cpu}
    return list(cores.values())


def _groups(said: int | list[str], cores: list[CpuSet]) -> tuple[str, ...]:
    """The groups themselves, or as many equal ones of consecutive cores."""
    if not isinstance(said, int):
        return tuple(said)
    size = len(cores) // said
    starts = range(0, len(cores), size)
    return tuple(cpuset.format(cpuset.EMPTY.union(*cores[at : at + size])) for at in starts)


def _gpu(kind: str, device: int | list[Any], homes: dict[int, str], facts: Facts) -> Gpu:
    address, numa, *rest = (None, device) if isinstance(device, int) else device
    cpus, memory_node = (*rest, None, None)[:2]
    defaults = {name: facts[name] for name in ("parts", "model") if name in facts}
    return Gpu(numa, cpus or homes[numa], address, kind, memory_node=memory_node, **defaults)


_PUBLISHED = _FACTS["published"]
NAMED = {
    name: machine(facts, _PUBLISHED)
    for machines in _FACTS.values()
    for name, facts in machines.items()
}
ALL = tuple(NAMED[name] for name in _PUBLISHED)


def __getattr__(name: str) -> Machine:
    if name in NAMED:
        return NAMED[name]
    raise AttributeError(f"no machine is called {name}")
