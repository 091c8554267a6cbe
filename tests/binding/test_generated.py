"""The rules hold on machines that nobody has seen."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from spawnlaunch.binding.apply import Binding
from spawnlaunch.binding.claims import TaskView
from spawnlaunch.binding.plan import Plan, plan
from spawnlaunch.cpuset import EMPTY
from spawnlaunch.node import Node
from spawnlaunch.node.visible import Visible
from spawnlaunch.values import FIRST_PER_L3, NAMES, NONE, Policy
from tests.binding.generated import Situation, situations
from tests.binding.rules import Expected, Group, Placed, violations
from tests.support.examples import examples

CpuSet = frozenset[int]


def near(node: Node, device: int) -> CpuSet:
    """The allowed CPUs next to the device; all that are allowed where that is not known."""
    local = node.devices[device].local_cpus
    return node.cpus_allowed if local is None else local & node.cpus_allowed


def groups(node: Node, claims: list[CpuSet]) -> list[Group]:
    """Ranks with the same claim; where claims overlap, a rank may get less than an even part."""
    by_claim: dict[CpuSet, list[int]] = {}
    for rank, claim in enumerate(claims):
        if claim:
            by_claim.setdefault(claim, []).append(rank)
    found = []
    for claim, ranks in by_claim.items():
        overlapping = any(other & claim for other in by_claim if other != claim)
        cores = sum(1 for core in node.cores if core & claim)
        found.append(Group(ranks, cores, 1 if overlapping else max(1, cores // len(ranks))))
    return found


def everyone_can_have_a_core(node: Node, claims: list[CpuSet]) -> bool:
    """Whether there is a matching of claims to cores (Kuhn's algorithm, one claim at a time)."""
    holder: dict[int, int] = {}

    def give(claim: int, seen: set[int]) -> bool:
        for i, core in enumerate(node.cores):
            if core & claims[claim] and i not in seen:
                seen.add(i)
                if i not in holder or give(holder[i], seen):
                    holder[i] = claim
                    return True
        return False

    return all(give(claim, set()) for claim, cpus in enumerate(claims) if cpus)


def check(node: Node, visible: tuple[int, ...], bindings: Plan) -> None:
    claims = [near(node, device) for device in visible]
    enough = everyone_can_have_a_core(node, claims)
    placed = [Placed(b.local_rank, b.device, b.cpus) for b in bindings.bindings]
    expected = [Expected(d, c) for d, c in zip(visible, claims, strict=True)]
    found = violations(
        placed,
        expected,
        groups(node, claims) if enough else [],
        node.cpus_allowed,
        node.cores,
        bool(bindings.warnings),
    )
    assert found == []
    local = [rank.cpus for rank, claim in zip(placed, claims, strict=True) if claim]
    overlap = any(one & other for one, other in combinations(local, 2))
    assert not (enough and overlap)
    assert enough or any("fewer cores than ranks" in line for line in bindings.warnings)


@examples(60, 400)
@given(situations())
def test_a_launcher_of_all_ranks(situation: Situation) -> None:
    node, visible = situation
    check(node, visible, plan(node, Visible(visible, "", ()), len(visible)))


@examples(40, 150)
@given(situations())
def test_tasks_that_see_one_device_each(situation: Situation) -> None:
    node, visible = situation
    bindings: list[Binding] = []
    warnings: list[str] = []
    for rank, device in enumerate(visible):
        alone = Visible((device,), "", ())
        own = plan(node, alone, len(visible), task=TaskView(rank, step_devices=visible))
        bindings += own.bindings
        warnings += own.warnings
    check(node, visible, Plan(tuple(bindings), node.cpus_allowed, tuple(warnings)))


@examples(50, 200)
@given(
    situations(),
    st.sampled_from(NAMES),
    st.booleans(),
    st.booleans(),
    st.one_of(st.none(), st.integers(1, 9)),
    st.integers(1, 70),
)
def test_no_policy_fails_or_leaves_what_is_allowed(
    situation: Situation, name: str, smt: bool, first: bool, threads: int | None, ranks: int
) -> None:
    node, visible = situation
    policy = Policy(name, reserve=FIRST_PER_L3 if first else EMPTY, smt=smt, threads=threads)
    for devices in (visible, (), (None,)):
        bindings = plan(node, Visible(devices, "", ()), ranks, policy).bindings
        assert [binding.local_rank for binding in bindings] == list(range(ranks))
        for binding in bindings:
            assert binding.cpus <= node.cpus_allowed
            assert bool(binding.cpus) == (name != NONE)
            assert binding.threads >= 1


@examples(50, 200)
@given(situations(), st.integers(1, 40))
def test_ranks_without_devices_are_spread_evenly_and_alone(situation: Situation, n: int) -> None:
    node = situation.node._replace(devices=())
    bindings = plan(node, Visible((), "", ()), n).bindings
    usable = [core & node.cpus_allowed for core in node.cores if core & node.cpus_allowed]
    counts = [sum(1 for core in usable if core & binding.cpus) for binding in bindings]
    assert max(counts) - min(counts) <= 1
    if len(usable) >= n:
        assert sum(counts) == len(usable)
        assert frozenset().union(*(binding.cpus for binding in bindings)) == node.cpus_allowed
