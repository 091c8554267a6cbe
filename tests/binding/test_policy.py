"""What can be asked for, and what each policy gives on a machine whose answer is known."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from spawnlaunch.base import cpuset
from spawnlaunch.base.cpuset import EMPTY
from spawnlaunch.base.errors import UsageError
from spawnlaunch.binding.claims import TaskView
from spawnlaunch.binding.plan import Plan, bind_ranks, plan
from spawnlaunch.cli.flags import Program, Request
from spawnlaunch.cli.values import DEFAULT, FIRST_PER_L3, NAMES, Policy, bind, reserve
from spawnlaunch.node import Node
from spawnlaunch.node.visible import Visible, visible
from spawnlaunch.world.identity import Resolution, World
from spawnlaunch.world.managers import slurm
from tests import machines
from tests.machines.small import small
from tests.machines.tree import Gpu, Machine, node_of

if TYPE_CHECKING:
    from collections.abc import Mapping

LUMI, DGX, MN5 = machines.LUMI, machines.DGX_A100, machines.MARENOSTRUM5
FIRST = Policy(reserve=FIRST_PER_L3)
NO_DEVICES: dict[str, Any] = {"devices": ()}


@pytest.fixture(scope="module")
def lumi() -> Node:
    return node_of(machines.LUMI)


def allowing(cpus: str) -> dict[str, Any]:
    """A change of a node: its mask."""
    return {"cpus_allowed": cpuset.parse(cpus)}


@pytest.mark.parametrize(
    ("text", "lists"),
    [
        *((name, []) for name in NAMES),
        ("48-55:56-63", ["48-55", "56-63"]),
        ("0xff000000000000,0xff00000000000000", ["48-55", "56-63"]),
    ],
)
def test_a_policy_is_a_name_or_lists_or_masks(text: str, lists: list[str]) -> None:
    assert [cpuset.format(cpus) for cpus in bind(text).lists] == lists
    assert lists or bind(text) == Policy(text)


@pytest.mark.parametrize("text", ["cores", "", "ldoms", ":0"])
def test_what_is_neither_names_the_choices(text: str) -> None:
    with pytest.raises(ValueError, match=f"{', '.join(NAMES)}.*48-55:56-63"):
        bind(text)


def test_a_wrong_list_says_what_a_list_is() -> None:
    with pytest.raises(cpuset.CpuSetError, match="0-3,8"):
        bind("0-3:x")


class Case(NamedTuple):
    """What is asked for on a machine, and what some ranks get."""

    machine: Machine
    cpus: Mapping[int, str]  # of the first binding, and others, by their place
    policy: Policy | str = DEFAULT
    devices: tuple[int | None, ...] | None = None  # None: as visible
    ranks: int | None = None  # None: one for each device
    task: TaskView | None = None
    change: Mapping[str, Any] = {}  # of the node
    threads: int | None = None  # of each rank
    warning: str = ""  # the beginning of one; "": there is none


FINER = LUMI._replace(gpus=(Gpu(0, "0-15,64-79"), Gpu(0, "0-7,64-71"), Gpu(0, "0-7,64-71")))
# Of six cores each rank has three, two of them in the middle group.
SIX = Machine("six", "invented", tuple("012345"), {0: "0-5"}, ("0", "1-4", "5"))
CASES = {
    "NUMA nodes": Case(
        LUMI, {0: "48-63,112-127", 1: "48-63,112-127", 2: "16-31,80-95"}, "node", threads=8
    ),
    "packages": Case(DGX, {3: "0-63,128-191", 4: "64-127,192-255"}, "socket"),
    "packages, some nodes have no CPUs": Case(
        machines.GH200, {0: "0-71", 1: "72-143", 2: "144-215", 3: "216-287"}, "socket"
    ),
    "parts of NUMA nodes": Case(DGX, {0: "48-55,176-183", 1: "56-63,184-191"}, "exclusive"),
    "an L3 group each": Case(DGX, {0: "48-51,176-179", 1: "56-59,184-187"}, "core-complex"),
    "an L3 group each, beside the device": Case(
        LUMI, {0: "40-47,104-111", 1: "32-39,96-103"}, "core-complex", (7, 6, 5, 4, 3, 2, 1, 0)
    ),
    "an L3 group that two would take": Case(SIX, {0: "1-4", 1: "5"}, "core-complex", ranks=2),
    "lists in what is allowed": Case(
        LUMI, {0: "48-49"}, "48-51", ranks=1, change=allowing("48-49"),
        warning="only 48-49 are allowed",
    ),
    "reserved": Case(LUMI, {4: "4-7,68-71"}, Policy(reserve=reserve("0-3,64-67"))),
    "all reserved": Case(
        LUMI, {0: "48-55,112-119"}, Policy(reserve=reserve("0-127")), warning="none is kept free"
    ),
    "an L3 group of one core keeps it": Case(
        MN5._replace(l3=tuple(map(str, range(80)))), {0: "0-19", 1: "20-39"}, FIRST
    ),
    "no L3 known to reserve from": Case(
        MN5._replace(l3=()), {0: "0-19"}, FIRST, warning="no core is reserved"
    ),
    "two threads": Case(LUMI, {0: "48-49,112-113"}, Policy(threads=2), threads=2),
    "a finer claim within a coarser one": Case(
        FINER, {0: "8-15,72-79", 1: "0-3,64-67", 2: "4-7,68-71"}
    ),
    "packages that are not known": Case(
        DGX, {}, "socket", change={"packages": ()}, warning="not known here"
    ),
    "L3 groups that are not known": Case(
        DGX, {}, "core-complex", change={"l3": ()}, warning="not known here"
    ),
    "a system without masks": Case(
        DGX, dict.fromkeys(range(4), ""), ranks=4, change=allowing("") | NO_DEVICES, threads=32
    ),
    "a domain without masks": Case(
        DGX, {}, "node", ranks=4, change=allowing("") | NO_DEVICES, warning="no CPU masks"
    ),
    "tasks that may be on one device": Case(
        DGX, {0: "48-55,176-183"}, devices=(0,), ranks=16, task=TaskView(9),
        warning="on the same device",
    ),
    "devices of the step without the task's": Case(
        DGX, {0: "48-55,176-183"}, devices=(0,), ranks=2, task=TaskView(0, step_devices=(4, 5)),
        warning="names devices 4-5",
    ),
    "devices that cannot be told": Case(
        DGX, {1: "64-127,192-255"}, devices=(None, None), warning="cannot be told"
    ),
    "a task's device that cannot be told": Case(
        DGX, {0: "64-127,192-255"}, devices=(None, None), task=TaskView(1), warning="cannot be told"
    ),
}  # fmt: skip


def planned(node: Node, case: Case) -> Plan:
    seen = visible(node, {}) if case.devices is None else Visible(case.devices, "", ())
    policy = bind(case.policy) if isinstance(case.policy, str) else case.policy
    return plan(node, seen, case.ranks or len(seen.devices), policy, task=case.task)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_ranks_get_the_cpus_that_the_policy_says(case: Case) -> None:
    result = planned(node_of(case.machine)._replace(**case.change), case)
    bindings = result.bindings
    assert {at: cpuset.format(bindings[at].cpus) for at in case.cpus} == case.cpus
    assert case.threads is None or {b.threads for b in bindings} == {case.threads}
    assert any(case.warning in line for line in result.warnings or [""])
    assert bool(result.warnings) == bool(case.warning)


def test_lists_are_taken_as_they_are_and_lie_where_they_lie(lumi: Node) -> None:
    bindings = planned(lumi, Case(LUMI, {}, "48-51:0-3", ranks=2)).bindings
    assert [cpuset.format(binding.cpus) for binding in bindings] == ["48-51", "0-3"]
    assert [binding.locality for binding in bindings] == ["local", "remote"]
    assert [set(binding.memory_nodes) for binding in bindings] == [{3}, {0}]


@pytest.mark.parametrize(
    ("text", "ranks", "allowed", "error"),
    [
        ("0-3", 1, "48-49", "allowed are 48-49; choose among these"),
        ("0-3:4-7", 3, "0-127", "there is a rank 2"),
    ],
)
def test_lists_that_leave_a_rank_without_cpus_are_an_error(
    lumi: Node, text: str, ranks: int, allowed: str, error: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(error)):
        planned(lumi._replace(**allowing(allowed)), Case(LUMI, {}, text, ranks=ranks))


def test_ranks_without_local_cpus_share_in_and_it_is_said(lumi: Node) -> None:
    result = planned(lumi._replace(**allowing("48-63")), Case(LUMI, {}))
    assert sorted(len(each.cpus) for each in result.bindings) == [2] * 8
    assert EMPTY.union(*(each.cpus for each in result.bindings)) == cpuset.parse("48-63")
    assert [each.locality for each in result.bindings] == ["local"] * 2 + ["remote"] * 6
    assert "local ranks 2-7: none" in result.warnings[0]


def test_ranks_without_devices_have_the_memory_of_the_nodes_that_they_are_spread_over() -> None:
    node = node_of(DGX)._replace(devices=())
    bindings = planned(node, Case(DGX, {}, ranks=4)).bindings
    assert [set(b.memory_nodes) for b in bindings] == [{0, 1}, {2, 3}, {4, 5}, {6, 7}]


def bound(node: Node, request: Request, mode: str = "local", size: int = 2) -> Plan:
    """The plan of a launcher on this node, and nothing but the request to go by."""
    rank = 2 if mode != "local" else 0
    world = World(mode, rank, size, rank, size, 0, 1, "", 0, "")
    step = {"SLURM_STEP_GPUS": "0-3"} if mode != "local" else {}
    told = Resolution(world, {}, (), (), step, mentioned=(slurm.Step(step),) if step else ())
    return bind_ranks(request, node, visible(node, {}), told)


@pytest.mark.parametrize(
    ("nodes_with_memory", "asked", "told"),
    [
        ({0, 1}, "preferred", "preferred"),
        ({0}, "preferred", "none"),  # the kernel prefers it without being asked
        ({0}, "bind", "bind"),
        ({0, 1}, "none", "none"),
    ],
)
def test_memory_is_asked_for_where_there_is_a_choice(
    lumi: Node, nodes_with_memory: set[int], asked: str, told: str
) -> None:
    node = lumi._replace(memory_nodes=frozenset(nodes_with_memory))
    request = Request(Program("script", "x.py", ()), "python", mem_bind=asked)
    assert {binding.mem_bind for binding in bound(node, request).bindings} == {told}


def test_a_rank_beside_several_nodes_tells_what_becomes_of_the_memory_policy() -> None:
    request = Request(Program("script", "x.py", ()), "python")
    bindings = bound(node_of(small(6, {0: "0-2", 1: "3-5"})), request, size=3).bindings
    assert [len(binding.memory_nodes) for binding in bindings] == [1, 2, 1]
    assert [binding.reports_memory for binding in bindings] == [False, True, False]


def test_a_mask_that_cannot_be_widened_is_said(lumi: Node) -> None:
    request = Request(Program("script", "x.py", ()), "python", widen=True)
    for group, said in ((None, True), (cpuset.parse("0-7"), False)):
        node = lumi._replace(cpus_cgroup=group, **allowing("0-3"), **NO_DEVICES)
        lines = bound(node, request, size=8).warnings
        assert any("--widen: the control group's" in line for line in lines) == said
        assert any("the mask allows 4 cores" in line for line in lines) == said


def test_a_task_is_bound_as_one_of_those_on_its_node(lumi: Node) -> None:
    request = Request(Program("script", "x.py", ()), "python")
    for mode, ranks in (("task", [2]), ("node", [0, 1, 2, 3])):
        bindings = bound(lumi, request, mode, 4).bindings
        assert [binding.local_rank for binding in bindings] == ranks
