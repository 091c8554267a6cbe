"""Which bindings the arms have on machines of all kinds, and which of them make no difference."""

import pytest

from spawnlaunch import cpuset
from spawnlaunch.bench import arms
from spawnlaunch.binding import plan
from spawnlaunch.binding.apply import Binding
from spawnlaunch.node import Node
from spawnlaunch.node.visible import visible
from spawnlaunch.values import Policy, bind
from tests.node import machines
from tests.node.tree import Machine, cores, node_of

LAPTOP = Machine("laptop", "", cores(4), {0: "0-3"}, ("0-3",), ("0-3",))
ONE_CORE = Machine("one core", "", cores(1), {0: "0"}, ("0",), ("0",))


def planned_on(
    machine: Machine, ranks: int, names=arms.NAMES
) -> tuple[Node, dict[str, arms.Planned]]:
    node = node_of(machine)
    seen = visible(node, {})

    def planned(name: str) -> tuple[Binding, ...]:
        return plan.plan(node, seen, ranks, Policy(name)).bindings

    return node, arms.on_node(node, node.cpus_allowed, names, planned)


# One of each vendor; the others are alike.
FIRST = ("LUMI-G", "Perlmutter", "Aurora")
MACHINES = [
    pytest.param(each, id=each.name, marks=[pytest.mark.full] * (each.name not in FIRST))
    for each in machines.ALL
]


@pytest.mark.parametrize("machine", MACHINES)
def test_far_uses_the_cpus_of_auto_and_no_rank_is_nearer_to_its_device(machine: Machine):
    node, made = planned_on(machine, max(1, len(machine.gpus)))
    near, far = made["auto"].bindings, made["far"].bindings
    if not far:
        assert made["far"].missing
        return
    assert sorted(map(sorted, (b.cpus for b in far))) == sorted(map(sorted, (b.cpus for b in near)))
    assert [b.device for b in far] == [b.device for b in near]
    remote = [b.locality for b in far].count(plan.REMOTE)
    assert remote > [b.locality for b in near].count(plan.REMOTE)
    for binding in far:
        assert binding.memory_nodes == plan.memory_beside(node, binding.cpus)


def test_on_lumi_every_rank_of_far_is_away_from_its_device():
    _, made = planned_on(machines.LUMI, 8)
    assert {b.locality for b in made["auto"].bindings} == {plan.LOCAL}
    assert {b.locality for b in made["far"].bindings} == {plan.REMOTE}


@pytest.mark.parametrize("machine", MACHINES)
def test_packed_has_all_ranks_on_one_domain_with_the_threads_of_auto(machine: Machine):
    node, made = planned_on(machine, max(2, len(machine.gpus)))
    packed = made["packed"].bindings
    assert len({b.cpus for b in packed}) == 1
    assert packed[0].cpus < node.cpus_allowed
    assert min(packed[0].cpus) == min(node.cpus_allowed)
    assert [b.threads for b in packed] == [b.threads for b in made["auto"].bindings]


def test_packed_is_one_core_where_there_is_nothing_larger_than_a_core():
    _, made = planned_on(LAPTOP, 2)
    assert [cpuset.format(b.cpus) for b in made["packed"].bindings] == ["0", "0"]


def test_arms_that_there_cannot_be_say_why():
    _, made = planned_on(LAPTOP, 2)
    assert made["far"] == ((), "no rank has a device here that it could be far from")
    assert planned_on(LAPTOP, 1)[1]["packed"] == ((), "there is one rank")
    assert planned_on(ONE_CORE, 2)[1]["packed"] == ((), "there is one core to share")


def test_the_flag_of_an_arm_binds_the_ranks_as_the_arm_does():
    node, made = planned_on(machines.LUMI, 8)
    seen = visible(node, {})
    for name in ("unpinned", "far", "packed", "auto", "socket"):
        typed = arms.flag(name, made[name].bindings).removeprefix("--bind ")
        again = plan.plan(node, seen, 8, bind(typed)).bindings
        assert [b.cpus for b in again] == [b.cpus for b in made[name].bindings], name


def test_arms_with_the_same_effect_are_left_out_and_named():
    node, made = planned_on(LAPTOP, 2)
    effects = {
        name: [arms.effect(node, b, node.cpus_allowed) for b in its.bindings] or [its.missing]
        for name, its in made.items()
    }
    out = arms.left_out(effects)
    assert set(effects) - set(out) == {"unpinned", "control", "packed", "auto"}
    assert out["exclusive"] == "it makes no difference here: every rank is bound as under auto"
    assert out["node"] == "it makes no difference here: every rank is bound as under unpinned"


def test_of_arms_that_are_one_the_default_is_kept_unless_it_is_the_first_of_all():
    bound, free = [arms.Effect("0", "", 1)], [arms.Effect("0-1", "", 2)]
    assert set(arms.left_out({"unpinned": free, "exclusive": bound, "auto": bound})) == {
        "exclusive"
    }
    assert set(arms.left_out({"exclusive": bound, "unpinned": free, "auto": bound})) == {"auto"}


def test_an_arm_that_differs_for_one_rank_of_many_is_measured():
    here, there = arms.Effect("0", "", 1), arms.Effect("1", "", 1)
    assert arms.left_out({"unpinned": [here, here], "auto": [here, there]}) == {}
    assert set(arms.left_out({"unpinned": [here, here], "auto": [here, here]})) == {"auto"}
    assert arms.left_out({"unpinned": [here], "far": ["no device"]}) == {"far": "no device"}
