"""Which bindings the arms have on machines of all kinds, and which of them make no difference."""

import itertools
from argparse import ArgumentTypeError
from collections import Counter

import pytest

from spawnlaunch.bench import arms
from spawnlaunch.bench.rounds import order
from spawnlaunch.binding import plan
from spawnlaunch.binding.apply import Binding
from spawnlaunch.cli import parsing
from spawnlaunch.cli.values import bind
from spawnlaunch.node import Node
from spawnlaunch.node.visible import visible
from tests import machines
from tests.machines.tree import Machine, cores, node_of

LAPTOP = Machine("laptop", "", cores(4), {0: "0-3"}, ("0-3",), ("0-3",))


def planned_on(
    machine: Machine, ranks: int, names=arms.NAMES
) -> tuple[Node, dict[str, arms.Planned]]:
    node = node_of(machine)
    seen = visible(node, {})

    def planned(arm: arms.ArmRequest) -> tuple[Binding, ...]:
        request = parsing.parse([*arm.flags, "-m", "a.worker"], {}, "python")
        return plan.plan(node, seen, ranks, request.policy).bindings

    asked = [each if isinstance(each, arms.ArmRequest) else arms.of_name(each) for each in names]
    return node, arms.on_node(node, asked, planned)


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
    remote = [b.locality for b in far].count(plan.FAR)
    assert remote > [b.locality for b in near].count(plan.FAR)
    for binding in far:
        assert binding.memory_nodes == plan.memory_beside(node, binding.cpus)


def test_arms_that_there_cannot_be_say_why():
    _, made = planned_on(LAPTOP, 2)
    assert made["far"] == ((), "no rank has a device here that it could be far from")


def test_the_flag_of_an_arm_binds_the_ranks_as_the_arm_does():
    node, made = planned_on(machines.LUMI, 8)
    seen = visible(node, {})
    for name in ("unpinned", "far", "auto", "socket"):
        typed = arms.of_name(name).typed(made[name].bindings).removeprefix("--bind ")
        again = plan.plan(node, seen, 8, bind(typed)).bindings
        assert [b.cpus for b in again] == [b.cpus for b in made[name].bindings], name


def test_arms_with_the_same_effect_are_left_out_and_named():
    node, made = planned_on(LAPTOP, 2)
    effects = {
        name: [arms.effect(node, b, node.cpus_allowed, arms.of_name(name)) for b in its.bindings]
        or [its.missing]
        for name, its in made.items()
    }
    out = arms.omitted(effects)
    assert set(effects) - set(out) == {"unpinned", "control", "auto"}
    assert "is bound as under auto" in out["exclusive"]
    assert "is bound as under unpinned" in out["node"]


def effect(cpus: str) -> arms.Effect:
    return arms.Effect(cpus, "", 1, 1, None, ())


def test_of_arms_that_are_one_the_default_is_kept_unless_it_is_the_first_of_all():
    bound, free = [effect("0")], [effect("0-1")]
    assert set(arms.omitted({"unpinned": free, "exclusive": bound, "auto": bound})) == {"exclusive"}
    assert set(arms.omitted({"exclusive": bound, "unpinned": free, "auto": bound})) == {"auto"}


def test_an_arm_that_differs_for_one_rank_of_many_is_measured():
    here, there = effect("0"), effect("1")
    assert arms.omitted({"unpinned": [here, here], "auto": [here, there]}) == {}
    assert set(arms.omitted({"unpinned": [here, here], "auto": [here, here]})) == {"auto"}
    assert arms.omitted({"unpinned": [here], "far": ["no device"]}) == {"far": "no device"}


def test_arms_by_flags_are_planned_by_the_launchers_own_plan():
    one = arms.of_flags("one=--threads 1 --smt off")
    _, made = planned_on(machines.LUMI, 8, ("auto", one))
    assert {len(b.cpus) for b in made["one"].bindings} == {1}
    assert one.typed(made["one"].bindings) == "--threads 1 --smt off"
    ring = arms.of_flags("ring=NCCL_ALGO=Ring --bind node --loader-workers=3")
    assert (ring.environ, ring.loader_workers) == ((("NCCL_ALGO", "Ring"),), 3)
    assert (ring.typed(()), ring.beside) == ("--bind node", "NCCL_ALGO=Ring num_workers=3")
    assert one.beside == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("smt-off", "'smt-off' is not an arm; use a name, = and flags"),
        ("auto=--smt off", "'auto' is an arm of the bench; choose another name"),
        ("a=--nproc 4", "a: --nproc=4 does not bind; an arm has flags of binding"),
        ("a=--smt maybe", "a: --smt: unknown value 'maybe'"),
        ("a=--bind 'x", "close the quotes"),
        ("a=--loader-workers", "--loader-workers needs a number; use --loader-workers 4"),
        ("a=--bind node train.py", "a: 'train.py' is not a flag; use flags of binding alone"),
        ("a=--threads 1 --bind", "a: --bind needs a value"),
    ],
)
def test_what_is_no_arm_is_refused_in_one_line(text: str, said: str):
    with pytest.raises(ArgumentTypeError) as refused:
        arms.of_flags(text)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_each_arm_follows_each_equally_often_itself_too(count: int):
    names, rounds = tuple("abcdefg"[:count]), 2000
    every = [order(names, "triad", number) for number in range(rounds)]
    assert all(sorted(each) == list(names) for each in every)
    assert every == [order(names, "triad", number) for number in range(rounds)]
    taken = [name for each in every for name in each]
    pairs = Counter(itertools.pairwise(taken))
    share = rounds / count  # of each pair
    assert len(pairs) == count**2
    assert all(abs(times - share) < 6 * share**0.5 + 1 for times in pairs.values()), pairs
