"""The check finds nothing wrong with what the launcher gives ranks by default, on any machine.

Where a mask has too few cores, or none next to a device, it says how to start with another mask.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from spawnlaunch.base import cpuset
from spawnlaunch.base.cpuset import CpuSet
from spawnlaunch.binding.plan import bind_ranks
from spawnlaunch.check import rules
from spawnlaunch.check.facts import Facts, Observation, derive
from spawnlaunch.check.rules import FAIL, Verdict
from spawnlaunch.cli import parsing, values
from spawnlaunch.node import Node, Quota
from spawnlaunch.node.visible import visible
from spawnlaunch.workers import starting
from spawnlaunch.workers.launches import Launch, Worker
from spawnlaunch.world import identity, resolve
from tests import machines
from tests.binding import scenarios
from tests.binding.test_generated import can_have_cores
from tests.machines import small
from tests.machines.tree import Machine, node_of
from tests.support.examples import examples
from tests.support.slurm_variables import of_task

MACHINES = [*machines.NAMED.values(), *small.ALL]
STEP_GPUS = "SLURM_STEP_GPUS"


class Job(NamedTuple):
    """A node with a mask, and the launchers there: of all ranks, or of the task of each."""

    node: Node
    words: str  # that are typed
    environs: tuple[Mapping[str, str], ...]

    @property
    def is_told(self) -> bool:
        """Whether each launcher knows the devices of all ranks here."""
        return bool(self.words) or STEP_GPUS in self.environs[0]


@st.composite
def jobs(draw: DrawFn) -> Job:
    """Any machine of the tests whose CPUs are all allowed, with any list of devices."""
    machine = draw(st.sampled_from(MACHINES))
    node = node_of(machine)
    node = node._replace(
        cpus_allowed=node.cpus_online, cpus_cgroup=None, quotas=draw(quotas()),
        memory_nodes=frozenset(each.id for each in node.numa if each.memory != 0),
    )  # fmt: skip
    shown = draw(shown_devices(machine))
    ranks = len(visible(node, shown).devices) or draw(st.integers(1, len(node.cores)))
    if draw(st.booleans()):
        return Job(node, f"--nproc {ranks}", (shown,))
    listed = ",".join(shown.values())
    alone = bool(shown) and draw(st.booleans())
    # Who sees its own device alone, and is not told of others, cannot know who is beside it.
    told = {STEP_GPUS: listed} if alone or (shown and draw(st.booleans())) else {}
    environs = []
    for rank in range(ranks):
        lists = {name: value.split(",")[rank] if alone else value for name, value in shown.items()}
        environs.append(lists | told | of_task(rank, ranks))
    return Job(node, "", tuple(environs))


@st.composite
def masked_jobs(draw: DrawFn) -> Job:
    """The same, of which some CPUs are allowed, some are isolated, and some memory is allowed."""
    job = draw(jobs())
    node = job.node._replace(cpus_allowed=draw(masks(job.node)))
    if draw(st.booleans()):
        node = node._replace(isolated=draw(masks(node)))
    if draw(st.booleans()):
        with_memory = st.sampled_from(sorted(node.memory_nodes))
        node = node._replace(memory_nodes=draw(st.frozensets(with_memory, min_size=1)))
    return job._replace(node=node)


def quotas() -> st.SearchStrategy[tuple[Quota, ...]]:
    return st.lists(st.builds(Quota, st.floats(0.1, 200), st.just("cpu.max")), max_size=1).map(
        tuple
    )


@st.composite
def masks(draw: DrawFn, node: Node) -> CpuSet:
    """Some of the CPUs that are online: whole NUMA nodes, L3 groups or cores, or single ones."""
    homes = [each.cpus for each in node.numa if each.cpus]
    singles = [frozenset({cpu}) for cpu in sorted(node.cpus_online)]
    parts = draw(st.sampled_from([each for each in (homes, node.l3, node.cores, singles) if each]))
    chosen = draw(st.sets(st.sampled_from(range(len(parts))), min_size=1))
    cpus = cpuset.EMPTY.union(*(parts[i] for i in chosen))
    return node.cpus_online - cpus or cpus if draw(st.booleans()) else cpus


@st.composite
def shown_devices(draw: DrawFn, machine: Machine) -> dict[str, str]:
    """A list of some devices in any order, where the vendor takes one; or none."""
    count = len(scenarios.devices(machine))
    if not count or draw(st.booleans()):
        return {}
    order = draw(st.permutations(range(count)))[: draw(st.integers(1, count))]
    return {scenarios.variable(machine): ",".join(map(str, order))}


def facts_of(job: Job) -> list[Facts]:
    """What the ranks tell."""
    found = []
    for environ in job.environs:
        line = f"--explain --sysfs-root / {job.words} --no-python true"
        request = parsing.parse(line.split(), environ, sys.executable)
        capacity = identity.Capacity(devices=0, cpus=1)
        resolution = resolve.resolve_world(request, environ, "node0", capacity)
        seen = visible(job.node, environ)
        plan = bind_ranks(request, job.node, seen, resolution)
        launch = Launch(request, resolution, plan, environ, "node0", "/tmp/x", None, seen, job.node)
        for worker in starting.make_workers(launch):
            there = job.node._replace(cpus_allowed=worker.binding.cpus)
            its = observed(job.node, worker)
            found.append(derive(there, worker.rank, worker.local_rank, its, worker.environ))
    return found


def observed(node: Node, worker: Worker) -> Observation:
    """What the system says of a process that has all that its launcher gives it."""
    shown, nodes = cpuset.format(worker.binding.cpus), worker.binding.memory_nodes
    policy = f"preferred{'-many' * (len(nodes) > 1)} {cpuset.format(nodes)}"
    return Observation(
        host="node0", pid=1 + worker.rank, cpus_at_start=shown, cpus=shown, threads=(shown,),
        loader_cpus=shown,
        memory="default" if worker.binding.mem_bind == values.NO_MEM else policy,
        memory_allowed=cpuset.format(node.memory_nodes),
        omp_threads=int(worker.environ["OMP_NUM_THREADS"]),
    )  # fmt: skip


def faults(everyone: Sequence[Facts]) -> list[Verdict]:
    return [each for each in rules.of_bindings(everyone) if each.status == FAIL]


@examples(60, 500)
@given(jobs())
def test_nothing_is_wrong_where_all_cpus_are_allowed(job: Job) -> None:
    assert faults(facts_of(job)) == []


@examples(100, 1500)
@given(masked_jobs())
def test_a_fault_is_the_masks_and_another_mask_is_the_cure(job: Job) -> None:
    everyone = facts_of(job)
    for fault in faults(everyone):
        ranks = [facts for facts in everyone if facts.rank in fault.ranks]
        assert is_of_the_mask(job, fault.name, ranks, everyone), fault
        assert fault.remedy in cures(job, fault.name, ranks, everyone), fault


def is_of_the_mask(job: Job, name: str, ranks: Sequence[Facts], everyone: Sequence[Facts]) -> bool:
    """Whether no division of the allowed CPUs, or of the allowed memory, is without this fault."""
    node = job.node
    if name == "far-memory":
        return all(_memory_near(node, facts).isdisjoint(node.memory_nodes) for facts in ranks)
    devices = [facts.device for facts in everyone]
    if not job.is_told:  # so each task divides by all devices
        devices += [each.number for each in node.devices if each.number not in devices]
    near = [_near(node, device) for device in devices]
    if name == "remote":
        return all(not near[devices.index(facts.device)] for facts in ranks)
    if name == "shared-cores":
        return not can_have_cores(node, [each or node.cpus_to_share for each in near], 1)
    # Who has nothing near shares in.
    return name == "one-core" and not (all(near) and can_have_cores(node, near, 2))


def cures(job: Job, name: str, ranks: Sequence[Facts], everyone: Sequence[Facts]) -> Iterator[str]:
    """The remedies that help, in the words of who has set the mask."""
    node = job.node
    usual = node.cpus_online - node.isolated or node.cpus_online
    if name == "far-memory":
        yield f"let the job have the memory of NUMA node {ranks[0].memory_near} (cpuset.mems)"
    elif ranks[0].cores_of_node < len(everyone) and not ranks[0].isolated:
        yield "start fewer ranks on this machine, which has fewer cores"
    elif node.cpus_allowed >= usual and not ranks[0].isolated:
        yield rules.FEWER
    for facts in ranks:
        for way in filter(None, (facts.wider, facts.nearer, facts.isolated)):
            yield f"start {way}"
            yield f"start fewer ranks, or {way}"


def _near(node: Node, device: int | None) -> CpuSet:
    """The CPUs that a device's rank can have next to it; all where its place is not known."""
    local = None if device is None else node.devices[device].local_cpus
    return node.cpus_to_share if local is None else local & node.cpus_to_share


def _memory_near(node: Node, facts: Facts) -> frozenset[int]:
    cpus = cpuset.parse(facts.cpus)
    return frozenset(each.id for each in node.numa if each.cpus & cpus and each.memory != 0)
