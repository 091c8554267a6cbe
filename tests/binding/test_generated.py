"""The rules hold on machines that nobody has seen."""

from itertools import combinations, product

from hypothesis import given
from hypothesis import strategies as st

from spawnlaunch.base.cpuset import EMPTY
from spawnlaunch.binding import claims
from spawnlaunch.binding.apply import Binding
from spawnlaunch.binding.claims import TaskView
from spawnlaunch.binding.cores import divide, share_out, usable_cores
from spawnlaunch.binding.plan import Plan, plan
from spawnlaunch.cli.values import DEFAULT, FIRST_PER_L3, NAMES, NONE, Policy
from spawnlaunch.node import Node
from spawnlaunch.node.visible import Visible
from tests.binding.generated import Situation, hybrids, situations
from tests.binding.rules import Expected, Group, Placed, violations
from tests.support.examples import examples

CpuSet = frozenset[int]


def near(node: Node, device: int) -> CpuSet:
    """The allowed CPUs next to the device; all that are allowed where that is not known."""
    local = node.devices[device].local_cpus
    return node.cpus_allowed if local is None else local & node.cpus_allowed


def groups(node: Node, claimed: list[CpuSet]) -> list[Group]:
    """Ranks with the same claim; where claims overlap, a rank may get less than an even part."""
    by_claim: dict[CpuSet, list[int]] = {}
    for rank, claim in enumerate(claimed):
        if claim:
            by_claim.setdefault(claim, []).append(rank)
    found = []
    for claim, ranks in by_claim.items():
        overlapping = any(other & claim for other in by_claim if other != claim)
        cores = sum(1 for core in node.cores if core & claim)
        least = max(1, cores // len(ranks))
        if not all(claimed):  # guests share in where nothing is left
            least = min(least, sum(1 for c in node.cores if c & node.cpus_allowed) // len(claimed))
        found.append(Group(ranks, cores, 1 if overlapping else least))
    return found


def can_have_cores(node: Node, claimed: list[CpuSet], each: int = 1) -> bool:
    """Whether all claims can have so many cores; those to nothing have none.

    A matching of claims to cores (Kuhn's algorithm, one claim at a time).
    """
    holder: dict[int, int] = {}
    claimed = claimed * each

    def give(claim: int, seen: set[int]) -> bool:
        for i, core in enumerate(node.cores):
            if core & claimed[claim] and i not in seen:
                seen.add(i)
                if i not in holder or give(holder[i], seen):
                    holder[i] = claim
                    return True
        return False

    return all(give(claim, set()) for claim, cpus in enumerate(claimed) if cpus)


def check(node: Node, visible: tuple[int, ...], bindings: Plan) -> None:
    claimed = [near(node, device) for device in visible]
    enough = can_have_cores(node, claimed)
    placed = [Placed(b.local_rank, b.device, b.cpus) for b in bindings.bindings]
    expected = [Expected(d, c) for d, c in zip(visible, claimed, strict=True)]
    found = violations(
        placed,
        expected,
        groups(node, claimed) if enough else [],
        node.cpus_allowed,
        node.cores,
        bool(bindings.warnings),
    )
    assert found == []
    local = [rank.cpus for rank, claim in zip(placed, claimed, strict=True) if claim]
    overlap = any(one & other for one, other in combinations(local, 2))
    assert not (enough and overlap)
    assert enough or any("fewer cores than ranks" in line for line in bindings.warnings)
    usable = [core & node.cpus_allowed for core in node.cores if core & node.cpus_allowed]
    if enough and len(usable) >= len(visible):  # a core for each, also for those with no place
        assert not any(one & other for one, other in combinations([p.cpus for p in placed], 2))
        assert sum(binding.threads for binding in bindings.bindings) <= len(usable)


@examples(60, 400)
@given(situations())
def test_guests_have_as_much_as_each_other_and_what_is_near(situation: Situation) -> None:
    node, visible = situation
    cores = usable_cores(node, DEFAULT, True, [])
    made = claims.of_node(node, cores, Visible(visible, "", ()), len(visible))
    shares = share_out(made.all, cores)
    guests = [(c, s) for c, s in zip(made.all, shares, strict=True) if c.distances]
    for (claim, share), (other, others) in combinations(guests, 2):
        assert abs(len(share.cores) - len(others.cores)) <= 1
        mine, its = dict(claim.distances), dict(other.distances)
        for core, instead in product(share.cores, others.cores):
            now = mine[core.numa] + its[instead.numa]
            assert now <= mine[instead.numa] + its[core.numa]  # no two cores are better exchanged


@examples(50, 200)
@given(hybrids(), st.integers(1, 40), st.integers(1, 4))
def test_each_rank_has_its_part_of_each_kind_of_cores(node: Node, ranks: int, cap: int) -> None:
    cores = usable_cores(node, DEFAULT, True, [])
    if ranks > len(cores):
        return
    whole, capped = divide(cores, ranks), divide(cores, ranks, cap)
    for kind in range(3):
        counts = [sum(core.kind == kind for core in share) for share in whole]
        assert max(counts) - min(counts) <= 1
    counts = [len(share) for share in whole]
    assert max(counts) - min(counts) <= 1
    assert sum(counts) == len(cores) == len({core.cpus for share in whole for core in share})
    for share, few in zip(whole, capped, strict=True):
        assert sorted(core.kind for core in few) == sorted(core.kind for core in share)[:cap]


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
