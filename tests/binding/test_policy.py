"""What can be asked for, and what each policy gives on a machine whose answer is known."""

from pathlib import Path

import pytest

from spawnlaunch import cpuset
from spawnlaunch import node as nodes
from spawnlaunch.binding.claims import TaskView
from spawnlaunch.binding.plan import Plan, bind_ranks, plan
from spawnlaunch.errors import UsageError
from spawnlaunch.flags import Program, Request
from spawnlaunch.node import Node
from spawnlaunch.node.visible import Visible, visible
from spawnlaunch.values import DEFAULT, FIRST_PER_L3, NAMES, Policy, bind, reserve
from spawnlaunch.world.identity import Resolution, World
from spawnlaunch.world.managers import slurm
from tests import machines
from tests.machines.tree import Gpu, build, node_of


@pytest.fixture(scope="module")
def lumi() -> Node:
    return node_of(machines.LUMI)


@pytest.fixture(scope="module")
def dgx() -> Node:
    return node_of(machines.DGX_A100)


def planned(node: Node, policy: Policy | str, ranks: int | None = None) -> Plan:
    asked = bind(policy) if isinstance(policy, str) else policy
    seen = visible(node, {})
    return plan(node, seen, ranks or len(seen.devices), asked)


def lists(plan: Plan) -> list[str]:
    return [cpuset.format(binding.cpus) for binding in plan.bindings]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_policies(name: str) -> None:
    assert bind(name) == Policy(name)


@pytest.mark.parametrize(
    "text",
    [
        "48-55:56-63",
        "0xff000000000000,0xff00000000000000",
        "mask_cpu:ff" + "0" * 12 + ",0xff" + "0" * 14,
    ],
)
def test_lists_and_masks_are_the_same_thing(text: str) -> None:
    assert [cpuset.format(cpus) for cpus in bind(text).lists] == ["48-55", "56-63"]


def test_strides_are_part_of_a_list() -> None:
    assert [cpuset.format(c) for c in bind("0-7:2/4:8").lists] == ["0-1,4-5", "8"]


@pytest.mark.parametrize("text", ["cores", "", "ldoms", ":0"])
def test_what_is_neither_names_the_choices(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"auto, node, socket, exclusive, core-complex, none.*48-55:56-63"
    ):
        bind(text)


def test_a_wrong_list_says_what_a_list_is() -> None:
    with pytest.raises(cpuset.CpuSetError, match="0-3,8"):
        bind("0-3:x")


def test_node_binds_to_the_numa_node(lumi: Node) -> None:
    result = planned(lumi, "node")
    assert lists(result)[:3] == ["48-63,112-127", "48-63,112-127", "16-31,80-95"]
    assert {binding.locality for binding in result.bindings} == {"local"}
    assert {binding.threads for binding in result.bindings} == {8}  # its part of the node


def test_socket_binds_to_the_package(dgx: Node) -> None:
    assert lists(planned(dgx, "socket"))[3:5] == ["0-63,128-191", "64-127,192-255"]


def test_socket_does_not_mind_nodes_without_cpus() -> None:
    node = node_of(machines.GH200)
    assert lists(planned(node, "socket")) == lists(planned(node, "auto"))


def test_exclusive_divides_the_numa_node(dgx: Node) -> None:
    assert lists(planned(dgx, "exclusive"))[:2] == ["48-55,176-183", "56-63,184-191"]


def test_core_complex_gives_each_rank_one_of_its_own(dgx: Node) -> None:
    result = planned(dgx, "core-complex")
    assert lists(result)[:2] == ["48-51,176-179", "56-59,184-187"]
    assert len(set(lists(result))) == 8


def test_core_complex_is_next_to_its_device_in_any_order(lumi: Node) -> None:
    backwards = Visible((7, 6, 5, 4, 3, 2, 1, 0), "", ())
    result = plan(lumi, backwards, 8, Policy("core-complex"))
    assert lists(result)[:2] == ["40-47,104-111", "32-39,96-103"]


def test_none_leaves_the_mask_and_divides_the_threads(lumi: Node) -> None:
    result = planned(lumi, "none", 4)
    assert {binding.cpus for binding in result.bindings} == {frozenset()}
    assert {binding.threads for binding in result.bindings} == {16}


def test_lists_are_taken_as_they_are(lumi: Node) -> None:
    result = planned(lumi, "48-51:0-3", 2)
    assert lists(result) == ["48-51", "0-3"]
    assert [binding.locality for binding in result.bindings] == ["local", "remote"]
    assert [set(binding.memory_nodes) for binding in result.bindings] == [{3}, {0}]


def test_lists_do_not_leave_what_is_allowed(lumi: Node) -> None:
    narrow = lumi._replace(cpus_allowed=cpuset.parse("48-49"))
    result = planned(narrow, "48-51", 1)
    assert lists(result) == ["48-49"]
    assert "only 48-49 are allowed" in result.warnings[0]
    with pytest.raises(UsageError, match="allowed are 48-49; choose among these"):
        planned(narrow, "0-3", 1)


def test_a_rank_without_a_list_is_an_error(lumi: Node) -> None:
    with pytest.raises(UsageError, match="there is a rank 2"):
        planned(lumi, "0-3:4-7", 3)


def test_reserved_cpus_are_nobodys(lumi: Node) -> None:
    policy = Policy(reserve=reserve("0-3,64-67"))
    assert lists(planned(lumi, policy))[4] == "4-7,68-71"
    assert reserve("first-per-l3") == FIRST_PER_L3


def test_reserving_everything_reserves_nothing(lumi: Node) -> None:
    result = planned(lumi, Policy(reserve=reserve("0-127")))
    assert "none is kept free" in result.warnings[0]
    assert all(binding.cpus for binding in result.bindings)


def test_an_l3_group_of_one_core_keeps_it() -> None:
    machine = machines.MARENOSTRUM5._replace(l3=tuple(str(cpu) for cpu in range(80)))
    node = node_of(machine)
    assert planned(node, Policy(reserve=FIRST_PER_L3)) == planned(node, DEFAULT)


def test_unknown_l3_groups_cannot_be_reserved_from() -> None:
    node = node_of(machines.MARENOSTRUM5._replace(l3=()))
    assert "no core is reserved" in planned(node, Policy(reserve=FIRST_PER_L3)).warnings[0]


def test_threads_limit_the_cores_of_a_rank(lumi: Node) -> None:
    few = planned(lumi, Policy(threads=2))
    assert lists(few)[0] == "48-49,112-113"
    assert {binding.threads for binding in few.bindings} == {2}
    many = planned(lumi, Policy(threads=9))
    assert {binding.threads for binding in many.bindings} == {8}
    assert "fewer than 9 cores for each" in many.warnings[0]


def test_two_ranks_on_one_device_split_its_cores(lumi: Node) -> None:
    result = planned(lumi, DEFAULT, 16)
    assert [binding.device for binding in result.bindings] == [*range(8), *range(8)]
    assert lists(result)[0] == "48-51,112-115"
    assert lists(result)[8] == "52-55,116-119"
    assert "16 local ranks on 8 devices" in result.warnings[0]


def test_a_subset_of_the_devices_divides_the_domain_among_those_in_use(dgx: Node) -> None:
    result = plan(dgx, Visible((1, 2), "", ()), 2)
    assert lists(result) == ["48-63,176-191", "16-31,144-159"]


def test_a_rank_without_local_cpus_shares_and_says_so(lumi: Node) -> None:
    result = plan(lumi._replace(cpus_allowed=cpuset.parse("48-63")), visible(lumi, {}), 8)
    assert lists(result)[0] == "48-55"
    assert lists(result)[2] == "48-63"
    assert result.bindings[2].locality == "remote"
    assert result.bindings[2].threads == 2
    assert "local ranks 2-7: none" in result.warnings[0]


def test_more_ranks_than_cores_share_and_say_so(lumi: Node) -> None:
    result = plan(lumi._replace(cpus_allowed=cpuset.parse("0-1,64-65")), Visible((), "", ()), 5)
    assert lists(result) == ["0,64", "0,64", "0,64", "1,65", "1,65"]
    assert {binding.note for binding in result.bindings} == {"shares cores"}
    assert result.warnings == (
        "local ranks 0-4: there are fewer cores than ranks, so ranks share cores",
    )


def test_ranks_without_devices_are_spread_over_numa_nodes_and_l3_groups(dgx: Node) -> None:
    node = dgx._replace(devices=())
    assert [set(b.memory_nodes) for b in planned(node, DEFAULT, 4).bindings] == [
        {0, 1},
        {2, 3},
        {4, 5},
        {6, 7},
    ]
    assert lists(planned(node, DEFAULT, 32))[:2] == ["0-3,128-131", "4-7,132-135"]


@pytest.mark.parametrize("ranks", [8, 5])
def test_tasks_without_devices_agree(dgx: Node, ranks: int) -> None:
    node = dgx._replace(devices=())
    together = planned(node, DEFAULT, ranks).bindings
    nothing = Visible((), "", ())
    for rank in range(ranks):
        assert plan(node, nothing, ranks, task=TaskView(rank)).bindings == (together[rank],)


def test_a_mask_of_the_tasks_own_is_not_divided_again(dgx: Node) -> None:
    node = dgx._replace(devices=(), cpus_allowed=cpuset.parse("16-31"))
    own = plan(node, Visible((), "", ()), 8, task=TaskView(3, own_mask=True)).bindings[0]
    assert cpuset.format(own.cpus) == "16-31"
    with_device = plan(dgx, Visible((3,), "", ()), 8, task=TaskView(3, own_mask=True)).bindings[0]
    assert cpuset.format(with_device.cpus) == "16-31,144-159"


def test_tasks_that_all_see_everything_know_who_shares_a_device(dgx: Node) -> None:
    together = planned(dgx, DEFAULT, 12).bindings
    for rank in range(12):
        own = plan(dgx, visible(dgx, {}), 12, task=TaskView(rank)).bindings[0]
        assert own == together[rank]


def test_tasks_that_cannot_know_who_is_on_their_device_say_so(dgx: Node) -> None:
    result = plan(dgx, Visible((0,), "", ()), 16, task=TaskView(9))
    assert lists(result) == ["48-55,176-183"]
    assert "on the same device" in result.warnings[0]


@pytest.mark.parametrize("name", ["socket", "core-complex"])
def test_a_domain_that_is_not_known_is_named(dgx: Node, name: str) -> None:
    bare = dgx._replace(packages=(), l3=())
    assert "not known here" in planned(bare, name).warnings[0]


def test_step_devices_that_do_not_hold_the_tasks_own_are_not_believed(dgx: Node) -> None:
    result = plan(dgx, Visible((0,), "", ()), 2, task=TaskView(0, step_devices=(4, 5)))
    assert "names devices 4-5" in result.warnings[0]
    assert lists(result) == ["48-55,176-183"]


def test_step_devices_leave_the_rest_of_the_domain(dgx: Node) -> None:
    result = plan(dgx, Visible((0,), "", ()), 2, task=TaskView(0, step_devices=(0, 2)))
    assert lists(result) == ["48-63,176-191"]


def test_a_device_that_cannot_be_told_gets_a_share_of_everything(dgx: Node) -> None:
    for task in (None, TaskView(1)):
        result = plan(dgx, Visible((None, None), "", ()), 2, task=task)
        assert cpuset.format(result.bindings[-1].cpus) == "64-127,192-255"
        assert result.bindings[-1].locality == "unknown"
        assert "cannot be told" in result.warnings[0]


def test_a_system_without_masks_is_not_bound(dgx: Node) -> None:
    mac = dgx._replace(cpus_allowed=frozenset(), devices=())
    result = planned(mac, DEFAULT, 4)
    assert {(b.cpus, b.threads) for b in result.bindings} == {(frozenset(), 32)}
    assert result.warnings == ()
    assert "no CPU masks" in planned(mac, "node", 4).warnings[0]


def test_memory_comes_from_the_nearest_node_where_the_own_one_has_none(tmp_path: Path) -> None:
    root = build(tmp_path, machines.JUWELS_BOOSTER)
    meminfo = root / "sys/devices/system/node/node3/meminfo"
    meminfo.write_text("Node 3 MemTotal:       0 kB\n")
    (root / "sys/devices/system/node/node3/distance").write_text("32 32 12 10 32 32 32 32\n")
    own = planned(nodes.read(str(root)), DEFAULT).bindings[0]
    assert own.memory_nodes == {2}


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
    world = World("local", 0, 2, 0, 2, 0, 1, "", 0, "")
    bound = bind_ranks(request, node, visible(node, {}), Resolution(world, {}, (), (), {}))
    assert {binding.mem_bind for binding in bound.bindings} == {told}


def test_a_finer_claim_within_a_coarser_one_is_respected() -> None:
    """One device next to an L3 group, another next to the whole NUMA node around it."""
    gpus = (Gpu(0, "0-15,64-79"), Gpu(0, "0-7,64-71"), Gpu(0, "0-7,64-71"))
    node = node_of(machines.LUMI._replace(gpus=gpus))
    assert lists(planned(node, DEFAULT)) == ["8-15,72-79", "0-3,64-67", "4-7,68-71"]


def test_core_complexes_that_two_ranks_would_take_are_given_once() -> None:
    """Of six cores each has three, two of them in the middle group."""
    every = [frozenset({cpu}) for cpu in range(6)]
    l3 = (frozenset({0}), frozenset({1, 2, 3, 4}), frozenset({5}))
    node = Node(frozenset(range(6)), frozenset(range(6)), tuple(every), l3=l3)
    assert lists(plan(node, Visible((), "", ()), 2, Policy("core-complex"))) == ["1-4", "5"]


def test_a_mask_that_cannot_be_widened_is_said(lumi: Node) -> None:
    request = Request(Program("script", "x.py", ()), "python", widen=True)
    world = World("local", 0, 8, 0, 8, 0, 1, "", 0, "")
    for group, said in ((None, True), (cpuset.parse("0-7"), False)):
        node = lumi._replace(cpus_cgroup=group, cpus_allowed=cpuset.parse("0-3"))
        resolution = Resolution(world, {}, (), (), {})
        lines = bind_ranks(request, node, Visible((), "", ()), resolution).warnings
        assert any("--widen: the control group's" in line for line in lines) == said
        assert any("the mask allows 4 cores" in line for line in lines) == said


def test_a_task_is_bound_as_one_of_those_on_its_node(lumi: Node) -> None:
    request = Request(Program("script", "x.py", ()), "python")
    for mode, bound in (("task", [2]), ("node", [0, 1, 2, 3])):
        world = World(mode, 2, 4, 2, 4, 0, 1, "", 0, "")
        told = Resolution(world, {}, (), (), {"SLURM_STEP_GPUS": "0-3"}, around=(slurm.STEP,))
        found = bind_ranks(request, lumi, visible(lumi, {}), told)
        assert [binding.local_rank for binding in found.bindings] == bound
