"""All ranks of a Slurm step derive one world, each by itself, or refuse: whatever is missing."""

import random
from itertools import groupby

import pytest

from spawnlaunch.base.errors import UsageError
from spawnlaunch.world.identity import World
from tests.support.launching import SLURM_TASK
from tests.support.matrix import mostly_full
from tests.world.recorded import RECORDED
from tests.world.resolving import resolve

STEP, BATCH = (RECORDED["slurm"].environments[name] for name in ("STEP", "BATCH"))
OPEN_MPI = RECORDED["openmpi"].environments["OPEN_MPI_4"]


def derived(flags: str, environ: dict[str, str]) -> World | str:
    """The world, or the line that refuses it."""
    try:
        return resolve(flags, environ).world
    except UsageError as error:
        return str(error)


def random_step(generator: random.Random) -> list[dict[str, str]]:
    """What srun gives each task: uneven nodes, any distribution, of up to three components."""
    names = [f"n{number:02d}" for number in generator.sample(range(12), generator.randint(1, 5))]
    count = generator.choice([1, 1, 2, 3]) if len(names) > 2 else 1
    components = [sorted(names[i::count]) for i in range(count)]
    how = generator.choice(["block", "cyclic"])
    hosts: list[str] = []
    for nodes in components:
        slots = [[node] * generator.choice([1, 1, 2, 4]) for node in nodes]
        ranks = [host for slot in slots for host in slot]
        if how == "cyclic":
            ranks = [slot[i] for i in range(4) for slot in slots if i < len(slot)]
        hosts += ranks
    nodes = sorted(names)
    runs = [(n, len([*same])) for n, same in groupby(hosts.count(node) for node in nodes)]
    common = {
        "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "3", "SLURM_STEP_NUM_TASKS": str(len(hosts)),
        "SLURM_STEP_NUM_NODES": str(len(nodes)), "SLURM_DISTRIBUTION": how,
        "SLURM_STEP_NODELIST": f"n[{','.join(node[1:] for node in nodes)}]",
        "SLURM_STEP_TASKS_PER_NODE": ",".join(f"{n}(x{times})" for n, times in runs),
    }  # fmt: skip
    if count > 1:
        word = generator.choice(["PACK", "HET"])
        common["SLURM_HET_SIZE"] = str(count)
        for i, of_component in enumerate(components):
            common[f"SLURM_JOB_NODELIST_{word}_GROUP_{i}"] = ",".join(of_component)
    in_order = [node for of_component in components for node in of_component]
    tasks = []
    for rank, host in enumerate(hosts):
        here = [str(r) for r, other in enumerate(hosts) if other == host]
        tasks.append(
            common | {
                "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(here.index(str(rank))),
                "SLURM_NODEID": str(in_order.index(host)), "SLURM_GTIDS": ",".join(here),
                "SLURMD_NODENAME": host,
            }
        )  # fmt: skip
    return tasks


@pytest.mark.parametrize("steps", mostly_full([60, 1000]))
def test_all_ranks_of_a_random_step_agree_or_rank_0_says_where_it_is(
    steps: int,
) -> None:
    for seed in range(steps):
        tasks = random_step(random.Random(seed))
        said = f"seed {seed}: {tasks}"
        first, *others = (derived("", task) for task in tasks)
        if isinstance(first, str):  # only it can know, where each component has its own
            assert "SLURM_HET_SIZE" in tasks[0], said
            assert "rank 0 is on" in first, said
            continue
        worlds = [first, *(world for world in others if isinstance(world, World))]
        assert [world.rank for world in worlds] == [*range(len(tasks))], said
        assert {world.world_size for world in worlds} == {len(tasks)}, said
        assert {world.master_addr for world in worlds} == {tasks[0]["SLURMD_NODENAME"]}, said
        assert len({(world.master_port, world.run_id) for world in worlds}) == 1, said


def test_an_arbitrary_distribution_needs_the_host_of_rank_0() -> None:
    environ = SLURM_TASK | {"SLURM_DISTRIBUTION": "arbitrary"}
    with pytest.raises(UsageError, match=r"may be on any host of the step; use --master-addr"):
        resolve("", environ)
    assert resolve("--master-addr node2", environ).world.master_addr == "node2"


@pytest.mark.parametrize("flags", ["", "--nproc 2 --standalone"])
@pytest.mark.parametrize("name", STEP)
def test_a_variable_that_is_missing_is_named_or_no_loss(name: str, flags: str) -> None:
    found, whole = (
        derived(flags, {k: v for k, v in STEP.items() if k != name}),
        derived(flags, STEP),
    )
    if isinstance(found, str):
        assert f"{name} is missing here" in found
        assert not flags
    elif isinstance(whole, World):
        assert found._replace(run_id="") == whole._replace(run_id="")


@pytest.mark.parametrize(
    ("environ", "lost", "flags", "named"),
    [
        (STEP, "SLURM_PROCID SLURM_LOCALID", "", "SLURM_PROCID and SLURM_LOCALID are missing"),
        (STEP, "SLURM_GTIDS SLURM_STEP_TASKS_PER_NODE", "", "SLURM_STEP_TASKS_PER_NODE is"),
        (STEP, "SLURM_GTIDS SLURM_STEP_TASKS_PER_NODE", "--local-world-size 1", ""),
        (STEP, "SLURM_STEP_NODELIST", "--master-addr a", ""),
        (STEP, "SLURM_PROCID", "--nproc 2 --nnodes 2 --node-rank 1 --master-addr a", ""),
        (STEP | OPEN_MPI, "SLURM_PROCID SLURM_STEP_NODELIST", "--master-addr a", ""),
        (BATCH, "SLURM_JOB_NODELIST", "--nproc 2", "SLURM_JOB_NODELIST is missing"),
        (BATCH, "SLURM_JOB_ID", "--nproc 2", "SLURM_JOB_ID is missing"),
    ],
)
def test_what_nothing_else_tells_is_named(
    environ: dict[str, str], lost: str, flags: str, named: str
) -> None:
    left = {k: v for k, v in environ.items() if k not in lost.split()}
    if not named:
        resolve(flags, left)
        return
    with pytest.raises(UsageError, match=r"a wrapper \(env -i, .*--standalone") as refused:
        resolve(flags, left)
    assert str(refused.value).startswith(named)


def test_a_job_has_no_more_components_than_slurm_can_give_it() -> None:
    """MAX_HET_JOB_COMPS of slurm.h: a larger number is a mistake, and is not counted through."""
    of_129th = {"SLURM_JOB_NODELIST_HET_GROUP_128": "node1", "SLURM_HET_SIZE": "9" * 12}
    assert resolve("", {**STEP, **of_129th}).world.master_addr == "node0"
