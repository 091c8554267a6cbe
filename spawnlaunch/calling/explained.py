"""The types of what --explain=json prints, key by key."""

from __future__ import annotations

from typing import Any, TypedDict


class World(TypedDict):
    """Who the first of the workers is, among how many."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int | None  # None: not known
    nnodes: int | None
    master_addr: str
    master_port: int
    run_id: str


class Lost(TypedDict):
    """A candidate that was not taken."""

    value: Any
    source: str
    why: str


class Source(TypedDict):
    """Where a value came from: a variable, a flag, or a rule in words."""

    value: Any
    source: str
    lost: list[Lost]


class Numa(TypedDict):
    """A NUMA node."""

    id: int
    cpus: str
    memory: int | None  # bytes
    kind: str  # "cpu", "gpu", "memory" or "empty"


class Device(TypedDict):
    """A device, whether or not a worker has it."""

    index: int
    address: str
    vendor: str
    kind: str
    numa: int | None
    local_cpus: str | None


class Nic(TypedDict):
    """A high-speed network adapter."""

    name: str
    address: str
    numa: int | None
    local_cpus: str | None


class Node(TypedDict):
    """The machine. Lists of CPUs are text as the kernel writes them: 0-3,8."""

    cpus_allowed: str
    cpus_online: str
    cores: int
    siblings: list[str]
    l3: list[str]
    packages: list[str]
    numa: list[Numa]
    devices: list[Device]
    nics: list[Nic]


class WorkerDevice(TypedDict):
    """The device that a worker sits next to."""

    index: int
    address: str


class Worker(TypedDict):
    """A worker that would be started."""

    rank: int
    local_rank: int
    env: dict[str, str]  # what it does not inherit
    command: list[str]
    device: WorkerDevice | None
    cpus: str
    memory_nodes: list[int]
    threads: int
    locality: str
    note: str


class ExplainedLaunch(TypedDict):
    """All that a launch would go by."""

    mode: str  # "local", "node" or "task"
    world: World
    sources: dict[str, Source]  # by the names of World's keys, and "mode"
    node: Node
    workers: list[Worker]  # those that the launcher of this node would start
    warnings: list[str]
