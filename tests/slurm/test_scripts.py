"""What can be said of the scripts without running them to their ends."""

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import machines
from tests.cluster.slurm import require_slurm
from tests.machines.tree import build
from tests.slurm.scripts import DIRECTORY, GENERIC
from tests.support.launching import explain
from tests.support.required import require_programs
from tests.world.resolving import STEP_OF_TWO

require_slurm()
require_programs("shellcheck", package="shellcheck")
pytestmark = pytest.mark.full

SCRIPTS = sorted(DIRECTORY.glob("*.sh"))
# Where the ranks of a node sit on machines whose documentation says so, in the order of the ranks.
MI250X = ["49-55", "57-63", "17-23", "25-31", "1-7", "9-15", "33-39", "41-47"]
SITES = {
    "lumi.sh": (machines.LUMI, MI250X),
    "frontier.sh": (machines.FRONTIER, MI250X),
    "perlmutter.sh": (
        machines.PERLMUTTER,
        ["48-63,112-127", "32-47,96-111", "16-31,80-95", "0-15,64-79"],
    ),
    "juwels-booster.sh": (
        machines.JUWELS_BOOSTER,
        ["18-23,66-71", "6-11,54-59", "42-47,90-95", "30-35,78-83"],
    ),
    "alps.sh": (machines.GH200, ["0-71", "72-143", "144-215", "216-287"]),
}


def flags_of(script: Path) -> list[str]:
    """The flags that the script gives to spawnlaunch itself."""
    words = shlex.split(script.read_text().replace("\\\n", ""), comments=True)
    begin = words.index("spawnlaunch") + 1
    return words[begin : words.index("$@", begin)]


def exports_of(script: Path) -> dict[str, str]:
    """The variables that the script exports with a value that is plain."""
    lines = re.findall(r"^export (.*?)(?: #.*)?$", script.read_text(), re.MULTILINE)
    pairs = [word.partition("=") for line in lines for word in line.split()]
    return {name: value for name, _, value in pairs if "$" not in value}


def explained(script: Path, root: Path, local_rank: int) -> dict[str, Any]:
    """What the script's spawnlaunch would do as one task of the second node of two."""
    (each,) = re.findall(r"^#SBATCH --ntasks-per-node=(\d+)", script.read_text(), re.MULTILINE)
    step = STEP_OF_TWO | {
        "SLURM_STEP_NUM_TASKS": str(2 * int(each)),
        "SLURM_STEP_TASKS_PER_NODE": f"{each}(x2)",
        "SLURM_PROCID": str(int(each) + local_rank),
        "SLURM_LOCALID": str(local_rank),
    }
    # Without interfaces this machine's own ones may be complained about.
    own_interface = {"GLOO_SOCKET_IFNAME": "hsn0", "NCCL_SOCKET_IFNAME": "hsn0"}
    flags = ("--sysfs-root", root, *flags_of(script))
    return explain(*flags, **{**step, **own_interface, **exports_of(script)})


def test_every_script_is_known_to_the_tests_and_to_the_readme():
    names = {script.name for script in SCRIPTS}
    assert names == {*GENERIC, *SITES, "grid-engine.sh"}
    readme = (DIRECTORY / "README.md").read_text()
    assert set(re.findall(r"\]\(([\w-]+\.sh)\)", readme)) == names


def test_shellcheck_finds_nothing():
    done = subprocess.run(["shellcheck", *SCRIPTS], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("", 0)


@pytest.mark.parametrize("name", SITES)
def test_on_its_machine_a_script_puts_every_task_next_to_its_device(tmp_path: Path, name: str):
    machine, expected = SITES[name]
    root = build(tmp_path, machine)
    found = [explained(DIRECTORY / name, root, rank) for rank in range(len(machine.gpus))]
    assert [each["mode"] for each in found] == ["task"] * len(expected)
    assert [worker["cpus"] for each in found for worker in each["workers"]] == expected
    assert [each["workers"][0]["locality"] for each in found] == ["local"] * len(expected)
    assert [each["warnings"] for each in found] == [[]] * len(expected)


def test_on_juwels_tasks_see_all_gpus_and_use_the_infiniband_network(tmp_path: Path):
    exported = exports_of(DIRECTORY / "juwels-booster.sh")
    assert exported["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"
    root = build(tmp_path, machines.JUWELS_BOOSTER)
    found = explained(DIRECTORY / "juwels-booster.sh", root, 0)
    assert found["world"]["master_addr"] == "node0i"
