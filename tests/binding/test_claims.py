"""Properties of claims, domains, memory and threads on generated machines."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spawnlaunch.base.cpuset import EMPTY, CpuSet
from spawnlaunch.binding import claims
from spawnlaunch.binding.claims import TaskView, is_private_mask, step_devices
from spawnlaunch.binding.cores import Core, usable_cores
from spawnlaunch.binding.plan import locality, memory_beside, plan
from spawnlaunch.cli.values import DEFAULT, LIST, NAMES, NONE, Policy
from spawnlaunch.node import Device, Node, Numa
from spawnlaunch.node.visible import Visible
from tests.binding.generated import Situation, situations
from tests.support.examples import examples
from tests.support.slurm_variables import of_slurm

few = examples(30, 100)


def usable(node: Node) -> tuple[Core, ...]:
    return usable_cores(node, DEFAULT, True, [])


def near(node: Node, device: int | None) -> CpuSet:
    """The allowed CPUs next to the device; none where its place is not known."""
    local = None if device is None else node.devices[device].local_cpus
    return EMPTY if local is None else local & node.cpus_allowed


def expected(node: Node, devices: Sequence[int | None]) -> list[CpuSet]:
    """What ranks with these devices claim: their own, or as guests what the others leave."""
    own = [near(node, device) for device in devices]
    hosts = EMPTY.union(*own)
    left = [core & node.cpus_allowed for core in node.cores if core.isdisjoint(hosts)]
    left = [core for core in left if core]
    guests = EMPTY.union(*left) if len(left) >= own.count(EMPTY) else node.cpus_allowed
    return [cpus or guests for cpus in own]


@few
@given(situations(), st.integers(1, 9), st.booleans())
def test_each_rank_claims_what_is_next_to_its_device_or_is_a_guest(
    situation: Situation, ranks: int, unknown: bool
) -> None:
    node, devices = situation.node, (*situation.visible, *([None] if unknown else []))
    found = claims.of_node(node, usable(node), Visible(devices, "", ()), ranks)
    assert [rank.local_rank for rank in found.ranks] == list(range(ranks))
    of_ranks = [devices[rank % len(devices)] for rank in range(ranks)]
    for rank, claimed in zip(found.ranks, expected(node, of_ranks), strict=True):
        assert rank.device == of_ranks[rank.local_rank]
        assert rank.known == (rank.device is not None)
        assert found.all[rank.claim].cpus == claimed
        is_placed = rank.device is not None and node.devices[rank.device].local_cpus is not None
        assert rank.is_away == (is_placed and not near(node, rank.device))
        assert not found.all[rank.claim].distances or rank.is_away
    order = sorted(found.ranks, key=lambda r: r.claim)
    assert [rank.claim for rank in order] == list(range(len(found.all)))
    last = len(node.devices)
    assert order == sorted(order, key=lambda r: (last if r.device is None else r.device, r[0]))
    number = f"device{'' if len(devices) == 1 else 's'}"
    crowded = f"{ranks} local ranks on {len(devices)} {number}: ranks share devices"
    untold = [rank.local_rank for rank in found.ranks if not rank.known]
    assert found.warnings[: len(devices) < ranks] == ([crowded] if len(devices) < ranks else [])
    said = found.warnings[len(devices) < ranks :]
    assert [line.partition(":")[0] for line in said] == ([claims.named(untold)] if untold else [])


@few
@given(situations(), st.integers(1, 9))
def test_tasks_that_see_all_make_the_claims_that_a_launcher_makes(
    situation: Situation, size: int
) -> None:
    node, devices = situation
    devices = devices[:size]
    seen = Visible(devices, "", ())
    together = claims.of_node(node, usable(node), seen, size)
    for rank in range(size):
        task = TaskView(rank, step_devices=devices)
        own = claims.of_task(node, usable(node), seen, size, task)
        assert own == together._replace(ranks=[together.ranks[rank]])
        if 1 < len(devices) < size and len(node.devices) < size:  # others may be there, unseen
            other = claims.of_task(node, usable(node), seen, size, TaskView(rank))
            assert other[:2] == own[:2]


@few
@given(situations())
def test_a_task_that_sees_its_device_alone_claims_beside_all_of_the_vendor(
    situation: Situation,
) -> None:
    node, devices = situation
    odd = node.devices[-1]._replace(vendor="intel")
    node = node._replace(devices=(*node.devices[:-1], odd))
    for rank, own in enumerate(devices):
        seen, size = Visible((own,), "", ()), len(devices)
        found = claims.of_task(node, usable(node), seen, size, TaskView(rank))
        peers = [d.number for d in node.devices if (d == odd) == (own == odd.number)]
        if len(peers) == 1:  # so all tasks are on it
            peers, place = peers * size, rank
        else:  # others that are next to other CPUs have those, if the own one is not
            assert bool(found.warnings) == (len(peers) < size)
            assert all("no task knows which others" in line for line in found.warnings)
            unknown = [d.number for d in node.devices if d.local_cpus is None]
            if own in unknown or near(node, own):
                peers = [d for d in peers if d in unknown or near(node, d)]
            place = peers.index(own)
        assert [claim.cpus for claim in found.all] == expected(node, peers)
        assert [each[:4] for each in found.ranks] == [(rank, own, True, place)]


@few
@given(situations(), st.integers(1, 6))
def test_a_task_with_a_mask_of_its_own_or_without_a_device_divides_by_rank(
    situation: Situation, size: int
) -> None:
    node, devices = situation
    for rank in range(size):
        mine = TaskView(rank, has_private_mask=True)
        alone = claims.of_task(node, usable(node), Visible(devices, "", ()), size, mine)
        own = devices[rank % len(devices)]
        assert [claim.cpus for claim in alone.all] == [near(node, own) or node.cpus_allowed]
        assert [each[:4] for each in alone.ranks] == [(rank, own, True, 0)]
        none = claims.of_task(node, usable(node), Visible((), "", ()), size, TaskView(rank))
        assert [claim.cpus for claim in none.all] == [node.cpus_allowed] * size
        assert none[1:] == ([(rank, None, True, rank, False)], [])


def mixed() -> Node:
    """Devices of two vendors in turn, on four cores."""
    vendors = ("nvidia", "intel", "nvidia", "intel", "nvidia")
    every = frozenset(range(4))
    return Node(
        cpus_allowed=every, cpus_online=every, cores=tuple(frozenset({cpu}) for cpu in range(4)),
        devices=tuple(Device(i, f"0000:0{i}:00.0", each) for i, each in enumerate(vendors)),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "tasks", "devices"),
    [
        ("0-1", 2, (0, 2)), ("2,0", 1, (0, 4)), ("0-1", 3, None), ("0-2", 3, (0, 2, 4)),
        ("1-3", 1, None), ("", 0, None), ("x", 1, None), (None, 0, None),
    ],
)  # fmt: skip
def test_devices_of_the_step_are_counted_among_the_vendors(
    text: str | None, tasks: int, devices: tuple[int, ...] | None
) -> None:
    numbers = of_slurm("step_devices", SLURM_STEP_GPUS=text or "")
    assert step_devices(mixed(), numbers, tasks) == devices
    assert step_devices(mixed()._replace(devices=()), numbers, tasks) is None


def test_devices_of_the_step_are_those_of_the_only_vendor() -> None:
    node = mixed()._replace(devices=mixed().devices[1:2])
    assert step_devices(node, [0], 1) == (1,)


@pytest.mark.parametrize(
    ("masks", "rank", "size", "allowed", "group", "own"),
    [
        (None, 0, 2, {1}, None, True),
        (None, 0, 2, {1}, {1}, False),  # there is nothing else for any task
        (None, 0, 1, {1}, {1}, True),
        (None, 0, 2, {1}, {1, 2}, True),
        (None, 0, 2, {1, 2}, None, False),
        (None, 0, 2, set(), None, False),
        ("1,2,4", 1, 3, {1}, None, True),
        ("1,2,4", 1, 3, {1, 2}, None, False),
        ("1,6", 1, 2, {1}, None, True),
        ("1,2,4,2", 3, 4, {1}, None, False),
        ("1,2,4,2", 0, 4, {0}, None, True),
        ("1,2", 2, 3, {0}, None, False),
        ("1,2", 1, 3, {1}, None, True),
        ("1,2", 0, 2, set(), None, False),
        (",1,2", 1, 2, {1}, None, True),
        ("0x3,0xc", 1, 2, {2, 3}, None, True),
        ("0x3,0xc", 1, 2, {0, 1}, None, False),  # not what Slurm has set
        ("0x3,0xf", 0, 2, {0, 1}, None, False),  # another task has these CPUs too
        ("0x3", 0, 1, {0, 1}, None, True),
        ("0x3", 1, 2, {0, 1}, None, False),  # the same for every task
        ("none", 0, 1, {0, 1}, None, False),
    ],
)
def test_a_mask_is_a_tasks_own_where_no_other_has_a_part_of_it(
    masks: str | None, rank: int, size: int, allowed: set[int], group: set[int] | None, own: bool
) -> None:
    node = mixed()._replace(
        cpus_allowed=frozenset(allowed), cpus_cgroup=None if group is None else frozenset(group)
    )
    listed = of_slurm("masks", SLURM_CPU_BIND_LIST=masks or "")
    assert is_private_mask(node, listed, rank, size) == own


@pytest.mark.parametrize(
    ("kind", "cpus"),
    [
        ("map_cpu:", [{1}, {12}]),
        ("mask_cpu:", [{0}, {1, 4}]),
        ("", [{0}, {1, 4}]),
        ("map_ldom:", []),
    ],
)
def test_the_list_of_masks_is_read_as_srun_was_given_it(kind: str, cpus: list[set[int]]) -> None:
    masks = of_slurm("masks", SLURM_CPU_BIND_LIST="1,12", SLURM_CPU_BIND_TYPE=kind)
    assert [*masks] == cpus


@few
@given(situations(), st.integers(1, 9), st.one_of(st.none(), st.integers(1, 9)))
def test_threads_are_the_part_of_the_cores_that_a_rank_has_for_itself(
    situation: Situation, ranks: int, threads: int | None
) -> None:
    node = situation.node
    cores = sum(1 for core in node.cores if core & node.cpus_allowed)
    for seen in (Visible((), "", ()), Visible(situation.visible, "", ())):
        for binding in plan(node, seen, ranks, Policy(NONE, threads=threads)).bindings:
            assert binding.threads == (threads or max(1, cores // ranks))
        alone = TaskView(0, has_private_mask=True)
        (own,) = plan(node, seen, ranks, Policy(NONE), task=alone).bindings
        assert own.threads == cores
        for name in NAMES:
            for binding in plan(node, seen, ranks, Policy(name)).bindings:
                assert binding.threads <= max(1, len(binding.cpus) or cores)
    taken = tuple([node.cpus_allowed] * ranks)
    for binding in plan(node, seen, ranks, Policy(LIST, lists=taken, threads=threads)).bindings:
        assert binding.threads == (threads or cores)


def test_fewer_cores_than_were_asked_for_are_said_and_as_many_are_not() -> None:
    node = mixed()._replace(devices=())
    for threads, said in ((1, False), (2, False), (3, True)):
        lines = plan(node, Visible((), "", ()), 2, Policy(threads=threads)).warnings
        assert bool(lines) == said


@few
@given(situations(), st.data())
def test_a_rank_is_local_next_to_its_device_or_on_its_numa_node(
    situation: Situation, data: st.DataObject
) -> None:
    node = situation.node
    home = data.draw(st.sampled_from([None, *(each.id for each in node.numa)]))
    device = node.devices[0]._replace(numa=home)
    node = node._replace(devices=(device, *node.devices[1:]))
    at_home = EMPTY.union(*(each.cpus for each in node.numa if each.id == home))
    cpus = data.draw(st.sampled_from([node.cpus_allowed, at_home, device.local_cpus or EMPTY]))
    if device.local_cpus is None:
        assert locality(node, 0, True, cpus) == "unknown"
    else:
        is_near = not cpus - device.local_cpus or not cpus - at_home
        assert locality(node, 0, True, cpus) == ("local" if is_near else "remote")
    assert locality(node, None, True, cpus) == "local"
    assert locality(node, None, False, cpus) == "unknown"


@examples(80, 300)
@given(st.data())
def test_memory_comes_from_the_nearest_nodes_that_have_it(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 5))
    numa = tuple(
        Numa(
            i,
            frozenset({2 * i, 2 * i + 1}) if data.draw(st.booleans()) else EMPTY,
            data.draw(st.sampled_from([0, 1, None])),
            tuple((j, data.draw(st.sampled_from([10, 20, 30]))) for j in range(count)),
            data.draw(st.sampled_from(["cpu", "cpu", "gpu"])),
        )
        for i in range(count)
    )
    allowed = data.draw(st.frozensets(st.integers(0, count - 1)))
    cpus = data.draw(st.frozensets(st.integers(0, 2 * count - 1), min_size=1))
    node = mixed()._replace(numa=numa, memory_nodes=allowed)
    fit = {n.id for n in numa if n.kind == "cpu" and n.memory != 0 and n.id in allowed}
    beside = {n.id for n in numa if n.id in fit and n.cpus & cpus}
    away = [(d, to) for n in numa if n.cpus & cpus for to, d in n.distances if to in fit]
    nearest = {to for d, to in away if d == min(away)[0]}
    assert memory_beside(node, cpus) == (beside or nearest)
