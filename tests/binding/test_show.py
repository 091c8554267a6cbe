"""What people see: the line of a rank, the line for srun, the picture, and advice."""

from collections.abc import Mapping
from itertools import product

import pytest

from spawnlaunch.base import cpuset
from spawnlaunch.binding.apply import Binding
from spawnlaunch.binding.claims import TaskView, named
from spawnlaunch.binding.cores import widened
from spawnlaunch.binding.picture import letter, picture
from spawnlaunch.binding.placement import of_mask, openmp_hazards, report_line, srun_line
from spawnlaunch.binding.plan import plan
from spawnlaunch.cli.values import FIRST_PER_L3, Policy
from spawnlaunch.node import Node, Numa
from spawnlaunch.node.visible import Visible, visible
from tests import machines
from tests.machines.tree import Gpu, Machine, node_of
from tests.support.slurm_variables import OF_A_TASK


@pytest.fixture(scope="module")
def lumi() -> Node:
    return node_of(machines.LUMI)


def allowing(node: Node, cpus: str) -> Node:
    return node._replace(cpus_allowed=cpuset.parse(cpus))


def test_the_line_of_a_rank_says_what_is_unusual(lumi: Node) -> None:
    away = plan(allowing(lumi, "0"), visible(lumi, {}), 8).bindings[0]
    assert report_line(0, away, lumi, 1) == (
        "rank 0  local 0  gpu 0 0000:c1:00.0  numa 0  cpus 0 (1 core)  mem 0 omp 1  "
        "(no allowed CPU is next to its device)"
    )
    free = plan(lumi._replace(devices=()), Visible((), "", ()), 1, Policy("none")).bindings[0]
    assert report_line(0, free, lumi, 64) == ("rank 0  local 0  numa -  not pinned  mem - omp 64")
    aurora = node_of(machines.AURORA)
    tile = plan(aurora, visible(aurora, {}), 12).bindings[1]
    assert "gpu 1 0000:10:00.0 tile 1" in report_line(1, tile, aurora, 8)


def test_srun_can_be_told_the_same(lumi: Node) -> None:
    policy = Policy(reserve=FIRST_PER_L3, smt=False)
    assert srun_line(plan(lumi, visible(lumi, {}), 8, policy).bindings, 2) == (
        "srun --kill-on-bad-exit=1 --nodes=2 --ntasks=16 "
        "--cpu-bind=mask_cpu:"  # the masks that LUMI's guide prints
        "0xfe000000000000,0xfe00000000000000,0xfe0000,0xfe000000,"
        "0xfe,0xfe00,0xfe00000000,0xfe0000000000"
    )
    assert srun_line(plan(lumi, visible(lumi, {}), 8, Policy("none")).bindings, 1) is None


def test_the_picture_shows_ranks_on_cores_and_devices_beside_their_domain(lumi: Node) -> None:
    policy = Policy(reserve=FIRST_PER_L3)
    result = plan(allowing(lumi, "0-62,64-126"), visible(lumi, {}), 8, policy)
    lines = picture(lumi, result.bindings, result.allowed).splitlines()
    assert lines[0] == "package 0"
    assert lines[1] == "  numa 0  125 GiB"
    assert "    l3 48-55,112-119           .0000000           gpu 0 0000:c1:00.0" in lines
    assert "    l3 56-63,120-127           .111111-           gpu 1 0000:c6:00.0" in lines


@pytest.mark.parametrize("machine", machines.ALL, ids=lambda m: m.name)
@pytest.mark.parametrize("colour", [False, True])
def test_the_picture_fits_a_terminal_and_draws_each_core_once(
    machine: Machine, colour: bool
) -> None:
    node = node_of(machine)
    result = plan(node, visible(node, {}), len(visible(node, {}).devices))
    plain = picture(node, result.bindings, node.cpus_allowed)
    assert max(len(line) for line in plain.splitlines()) <= 80
    drawn = [line[31:48] for line in plain.splitlines() if line[:4] == "    "]
    assert sum(len(cores.replace(" ", "")) for cores in drawn) == len(node.cores)
    for device in node.devices:
        assert f"gpu {device.number} {device.address}" in plain
    painted = picture(node, result.bindings, node.cpus_allowed, colour)
    assert ("\033[" in painted) == colour


def test_the_picture_shows_devices_whose_place_is_wider_or_unknown() -> None:
    gpus = (Gpu(-1, "0-127"), Gpu(0, "0-15,64-79"), Gpu(0, "0-31,64-95"))
    node = node_of(machines.LUMI._replace(gpus=gpus))
    lines = picture(node, (), node.cpus_allowed).splitlines()
    assert lines[:2] == [
        "package 0                                         gpu 2 0000:12:00.0",
        "  numa 0  125 GiB                                 gpu 1 0000:11:00.0",
    ]
    assert "gpu 0 0000:10:00.0: place not known" in lines


STEP = OF_A_TASK
BOUND = STEP | {"SLURM_CPU_BIND_TYPE": "mask_cpu:"}


def advice(
    node: Node,
    ranks: int,
    allowed: str,
    task: TaskView | None = None,
    environ: Mapping[str, str] = BOUND,
) -> str | None:
    node = allowing(node, allowed)
    result = plan(node, visible(node, {}), ranks, task=task)
    return next(iter(of_mask(node, result.bindings, ranks, environ)), None)


def test_a_mask_on_the_wrong_cores_is_named_with_the_option_that_mends_it(lumi: Node) -> None:
    said = advice(lumi, 8, "48-63")
    assert "CPUs 48-63 are not next to device 2 (0000:c9:00.0)" in said
    assert "whose CPUs are 16-23,80-87: start with srun --cpu-bind=none" in said


def test_widening_stays_within_the_jobs_cpuset(lumi: Node) -> None:
    narrow = lumi._replace(cpus_allowed=cpuset.parse("3"))
    wide, refusal = widened(narrow._replace(cpus_cgroup=cpuset.parse("0-7")))
    assert (cpuset.format(wide.cpus_allowed), refusal) == ("0-7", [])
    for group in (None, lumi.cpus_online):
        kept, refusal = widened(narrow._replace(cpus_cgroup=group))
        assert kept.cpus_allowed == {3}
        assert "the mask stays" in refusal[0]


@pytest.mark.parametrize(
    ("environ", "names"),
    [
        ({}, []),
        ({"OMP_PROC_BIND": "false", "OMP_PLACES": "cores", "GOMP_CPU_AFFINITY": "0"}, []),
        ({"OMP_PROC_BIND": "TRUE"}, ["OMP_PROC_BIND"]),
        ({"OMP_PROC_BIND": "spread,close"}, ["OMP_PROC_BIND"]),
        ({"OMP_PROC_BIND": ""}, []),
        ({"OMP_PLACES": "threads"}, ["OMP_PLACES"]),
        ({"GOMP_CPU_AFFINITY": "0-3", "OMP_PLACES": "cores"}, ["OMP_PLACES", "GOMP_CPU_AFFINITY"]),
        ({"KMP_AFFINITY": "granularity=fine,compact,1,0"}, ["KMP_AFFINITY"]),
        ({"KMP_AFFINITY": "verbose, Scatter", "OMP_PROC_BIND": "false"}, ["KMP_AFFINITY"]),
        ({"KMP_AFFINITY": "proclist=[0,1]", "OMP_PLACES": "cores"}, ["KMP_AFFINITY", "OMP_PLACES"]),
        *(
            ({"KMP_AFFINITY": unbound}, [])
            for unbound in (
                "",
                "disabled",
                "none",
                "verbose,none",
                "granularity=fine",
                "noverbose,respect",
            )
        ),
    ],
)
def test_openmp_variables_that_shrink_a_worker_are_named(
    environ: dict[str, str], names: list[str]
) -> None:
    lines = openmp_hazards(environ)
    assert [line.split("=")[0] for line in lines] == names
    for line in lines:
        cure = "set it to disabled" if line.startswith("KMP") else "OMP_PROC_BIND=false"
        assert cure in line


def test_the_picture_of_a_machine_without_packages_marks_cores_whose_threads_differ() -> None:
    every = frozenset(range(4))
    node = Node(every, every, (frozenset({0, 1}), frozenset({2, 3})))
    ranks = [Binding(r, None, frozenset({r}), frozenset(), 1, "local", "") for r in range(2)]
    lines = picture(node, ranks, every).splitlines()
    assert not any(line.endswith("no CPUs") for line in lines)
    assert lines[:3] == ["packages not known", "  numa not known", f"       {'0-3':24}*."]
    with_memory = node._replace(numa=(Numa(7, frozenset(), 1 << 30, (), "memory"),))
    assert "numa 7: no CPUs" in picture(with_memory, ranks, every).splitlines()


def test_of_a_list_of_cpus_the_picture_shows_what_fits_in_its_column() -> None:
    shown = {}
    for ones, tens in product(range(1, 6), range(12)):
        cpus = frozenset([*range(0, 2 * ones, 2), *range(10, 10 + 2 * tens, 2)])
        node = Node(cpus, cpus, tuple(frozenset({cpu}) for cpu in sorted(cpus)))
        line = picture(node, (), cpus).splitlines()[2]
        label, cores = line[:31], line[31:]
        assert cores.replace(" ", "") == "." * len(cpus)
        shown[cpuset.format(cpus)] = label.strip()
    widest = max(len(whole) for whole, part in shown.items() if part == whole)
    for whole, part in shown.items():
        assert part == (whole if len(whole) <= widest else f"{whole[: widest - 2]}..")


def test_ranks_beyond_the_letters_have_one_character() -> None:
    assert [letter(rank) for rank in (0, 10, 61, 62, 99)] == ["0", "a", "Z", "#", "#"]


def test_ranks_are_named_by_their_number() -> None:
    assert [named([3]), named([0, 1, 3])] == ["local rank 3", "local ranks 0-1,3"]
