"""--nproc gpu, auto and cpu on several nodes: taken where the manager says one number for all.

That is where the launchers do not meet; where they do, nodes may differ.
"""

import pytest

from spawnlaunch.errors import UsageError
from spawnlaunch.world.identity import Capacity, World
from tests.world.recorded import RECORDED
from tests.world.resolving import STEP_OF_TWO, resolve

COUNTED = 4
HET = {
    "SLURM_HET_SIZE": "2",
    "SLURM_JOB_NODELIST_HET_GROUP_0": "node0",
    "SLURM_JOB_NODELIST_HET_GROUP_1": "node1",
}
BY_HAND = ["--nnodes=2", "--node-rank=1", "--master-addr=a"]
KUBEFLOW = RECORDED["kubeflow"].environ(["KUBEFLOW", {"PET_NPROC_PER_NODE": "gpu"}])


def derived(flags: list[str], environ: dict[str, str]) -> World:
    """The world of a node on which there are COUNTED of anything."""
    return resolve(["--no-gang", *flags], environ, "node1", Capacity(COUNTED, COUNTED)).world


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("gpu", {"SLURM_GPUS_PER_NODE": "4"}),
        ("auto", {"SLURM_GPUS_PER_NODE": "a100:2,v100:2"}),
        ("gpu", {"SLURM_GPUS_PER_TASK": "a100:4"}),
        ("cpu", {"SLURM_CPUS_PER_TASK": "4", "SLURM_JOB_CPUS_PER_NODE": "8,4"}),
        ("cpu", {"SLURM_JOB_CPUS_PER_NODE": "4(x2)"}),
    ],
)
def test_what_the_manager_says_of_all_nodes_is_taken(word: str, told: dict[str, str]) -> None:
    me = derived([f"--nproc={word}"], {**STEP_OF_TWO, **told})
    assert (me.rank, me.world_size) == (COUNTED, 2 * COUNTED)


@pytest.mark.parametrize(
    ("flags", "environ", "said"),
    [
        (["--nproc=gpu"], STEP_OF_TWO, "nothing says how many GPUs each of the 2 nodes has"),
        (["--nproc=auto"], STEP_OF_TWO, "nothing says how many GPUs"),
        (["--nproc=cpu"], STEP_OF_TWO, "nothing says how many CPUs"),
        (
            ["--nproc=gpu"],
            {**STEP_OF_TWO, "SLURM_GPUS_PER_NODE": "8"},
            "SLURM_GPUS_PER_NODE says 8",
        ),
        (["--nproc=cpu"], {**STEP_OF_TWO, "SLURM_JOB_CPUS_PER_NODE": "8,4"}, "nothing says"),
        (["--nproc=gpu"], {**STEP_OF_TWO, **HET, "SLURM_GPUS_PER_NODE": "4"}, "nothing says"),
        (["--nproc=gpu", *BY_HAND], {}, "nothing says how many GPUs"),
    ],
)
def test_what_may_differ_is_refused(flags: list[str], environ: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        derived(flags, environ)
    assert said in str(refused.value)
    assert f"--nproc={COUNTED}" in str(refused.value)


@pytest.mark.parametrize(
    ("flags", "environ"),
    [(["--nproc=4"], STEP_OF_TWO), (["--nproc=4", *BY_HAND], {}), ([], KUBEFLOW)],
    ids=["a number", "a number by hand", "pods of one template"],
)
def test_what_cannot_differ_is_taken(flags: list[str], environ: dict[str, str]) -> None:
    assert derived(flags, environ).world_size == 2 * COUNTED
