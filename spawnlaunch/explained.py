"""The types of what --explain=json prints, key by key."""

from __future__ import annotations

from typing import Any, TypedDict


class ExplainedWorld(TypedDict):
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


class ExplainedSource(TypedDict):
    """Where a value came from: a variable, a flag, or a rule in words."""

    value: Any
    source: str
    lost: list[Lost]


class ExplainedNuma(TypedDict):
    """A NUMA node."""

    id: int
    cpus: str
    memory: int | None  # bytes
    kind: str  # "cpu", "gpu", "memory" or "empty"


class ExplainedDevice(TypedDict):
    """A device, whether or not a worker has it."""

    index: int
    address: str
    vendor: str
    kind: str
    numa: int | None
    local_cpus: str | None


class ExplainedNic(TypedDict):
    """A high-speed network adapter."""

    name: str
    address: str
    numa: int | None
    local_cpus: str | None


class ExplainedNode(TypedDict):
    """The machine. Lists of CPUs are text as the kernel writes them: 0-3,8."""

    cpus_allowed: str
    cpus_online: str
    cores: int
    siblings: list[str]
    l3: list[str]
    packages: list[str]
    numa: list[ExplainedNuma]
    devices: list[ExplainedDevice]
    nics: list[ExplainedNic]


class WorkerDevice(TypedDict):
    """The device that a worker sits next to."""

    index: int
    address: str


class ExplainedWorker(TypedDict):
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
    world: ExplainedWorld
    sources: dict[str, ExplainedSource]  # by the names of world's keys, and "mode"
    node: ExplainedNode
    workers: list[ExplainedWorker]  # those that the launcher of this node would start
    warnings: list[str]
