"""Every manager from what it exports: the recorded environments, and several at once."""

import importlib
import pkgutil
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from spawnlaunch.errors import UsageError
from spawnlaunch.torchrun import variables
from spawnlaunch.world import managers
from spawnlaunch.world.identity import Manager
from spawnlaunch.world.managers.tables import KUBEFLOW
from tests.fuzz.environments import resolve
from tests.support.launching import REPORTER, clean_environ, explain, launch
from tests.world import recorded
from tests.world.recorded import MANAGERS, Case, Found, Refused
from tests.world.recorded.hydra import MPICH
from tests.world.recorded.openmpi import OPEN_MPI_4
from tests.world.recorded.pals import PALS
from tests.world.recorded.slurm import SALLOC, STEP

MODULES = [info.name for info in pkgutil.iter_modules(recorded.__path__)]
CASES = {
    name: importlib.import_module(f"{recorded.__name__}.{name}").CASES for name in sorted(MODULES)
}

# What is said of this machine's name and interfaces is another test's subject.
INTERFACES = {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "eth0"}


def explained(flags: str, environ: Mapping[str, str]) -> dict[str, Any]:
    return explain(*flags.split(), **{**INTERFACES, **environ})


def of_kind(kind: type) -> list[Any]:
    return [
        pytest.param(case, id=f"{manager}: {case.name}")
        for manager, cases in CASES.items()
        for case in cases
        if isinstance(case.expected, kind)
    ]


def environ_of(case: Case, directory: Path) -> dict[str, str]:
    for name, text in case.files.items():
        (directory / name).write_text(text)
    return {k: v.replace("{files}", str(directory)) for k, v in case.environ.items()}


def test_every_manager_is_recorded():
    known = {m if m == "slurm" else name.lower() for _, m, name in managers.ORDER}
    assert known == set(CASES)


def test_the_variable_of_each_row_is_one_that_its_manager_needs():
    rows = [(variable, managers.load(m, name).needs) for variable, m, name in managers.ORDER]
    assert [variable for variable, needs in rows if variable not in needs] == []


def test_torchruns_variables_know_kubeflows_pods_and_what_is_found_before_them():
    assert set(variables.POD) == set(KUBEFLOW.needs)
    known = [variable for variable, _, _ in managers.ORDER]
    assert list(variables.CLOSER) == known[: known.index("PET_NNODES")]


@pytest.mark.parametrize("manager", MANAGERS, ids=lambda manager: manager.name)
def test_every_answer_of_a_table_is_to_a_question_that_is_asked(manager: Manager):
    assert set(manager.answers) <= set(re.findall(r"\w+", Manager.__doc__ or ""))


@pytest.mark.parametrize("case", of_kind(Found))
def test_the_world_is_what_the_manager_exports(case: Case, tmp_path: Path):
    found = explained(case.expected.flags, environ_of(case, tmp_path))
    assert found["mode"] == case.expected.mode
    for question, expected in case.expected.values.items():
        source = found["sources"][question]
        if isinstance(expected, tuple):
            assert (source["value"], source["source"]) == expected, question
        assert found["world"][question] == source["value"]
        assert found["world"][question] == (
            expected[0] if isinstance(expected, tuple) else expected
        )


@pytest.mark.parametrize("case", of_kind(Refused))
def test_what_is_not_exported_is_asked_for_in_one_line(case: Case, tmp_path: Path):
    environ = clean_environ(**environ_of(case, tmp_path))
    done = launch(*case.expected.flags.split(), REPORTER, environ=environ)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert case.expected.said in line


def test_what_is_unknown_is_not_set_for_the_worker():
    (worker,) = explained("--master-addr node0", MPICH)["workers"]
    assert worker["env"]["RANK"] == "2"
    assert not {"NODE_RANK", "GROUP_RANK", "GROUP_WORLD_SIZE"} & set(worker["env"])


def test_pals_variables_of_slurms_own_plugin_are_not_pals():
    shasta = {k: v for k, v in PALS.items() if k.startswith("PALS_")}
    shasta |= {"PALS_RANKID": "2", "PALS_LOCAL_RANKID": "0", "PALS_LOCAL_SIZE": "1"}
    found = explained("", {**STEP, **shasta})
    assert found["sources"]["rank"]["source"] == "SLURM_PROCID"
    assert found["world"]["run_id"] == "1000.0"
    assert found["warnings"] == []


def test_open_mpi_inside_a_slurm_step_wins_and_it_is_said():
    found = explained("--master-addr node0", {**STEP, **OPEN_MPI_4})
    assert found["sources"]["rank"]["source"] == "OMPI_COMM_WORLD_RANK"
    assert found["world"]["world_size"] == 4
    (said,) = found["warnings"]
    assert said.startswith("Open MPI and Slurm disagree")


def test_the_allocation_around_open_mpi_contradicts_nothing():
    found = explained("--master-addr node0", {**SALLOC, **OPEN_MPI_4, "SLURM_NTASKS": "2"})
    assert found["mode"] == "task"
    assert found["warnings"] == []


def test_an_outer_manager_that_cannot_be_read_does_not_matter():
    unreadable = {**STEP, "SLURM_PROCID": "x", "SLURM_STEP_NODELIST": "node[0-"}
    found = explained("--master-addr node0", {**unreadable, **OPEN_MPI_4})
    assert found["world"]["rank"] == 2


# enroot conf/hooks/extra/50-slurm-pytorch.sh, where scontrol exists.
ENROOT = {
    "RANK": "2", "WORLD_SIZE": "3", "LOCAL_RANK": "0", "MASTER_ADDR": "node0",
    "MASTER_PORT": "62000", "OMP_NUM_THREADS": "1",
}  # fmt: skip


def test_what_enroots_hook_exports_inside_a_step_is_kept():
    found = explained("", {**STEP, **ENROOT})
    assert found["sources"]["rank"]["source"] == "SLURM_PROCID"
    assert found["sources"]["master_port"]["source"] == "MASTER_PORT"
    assert found["world"]["master_port"] == 62000
    assert found["warnings"] == []


def test_the_ranks_that_enroots_hook_exports_for_one_launcher_per_node_are_replaced():
    step = {**STEP, "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}
    step |= {"SLURM_PROCID": "1", "SLURM_GTIDS": "1", "SLURM_NTASKS": "2"}
    found = explained("--nproc 4", {**step, **ENROOT, "RANK": "1", "WORLD_SIZE": "2"})
    assert found["world"]["rank"] == 4
    assert found["world"]["world_size"] == 8
    assert found["world"]["master_port"] == 62000
    assert found["warnings"][0].startswith("replaced what an outer")


@pytest.mark.parametrize("address", ["localhost", "127.0.0.1", "::1"])
def test_an_inherited_address_by_which_every_node_means_itself_is_replaced(address: str):
    found = explained("", {**STEP, "MASTER_ADDR": address})
    assert found["world"]["master_addr"] == "node0"
    assert any(f"replaced MASTER_ADDR={address}" in said for said in found["warnings"])


@pytest.mark.parametrize("said", [{}, {"OMPI_NUM_APP_CTX": "1"}], ids=["not said", "said"])
def test_a_role_is_for_all_tasks_where_they_have_one_program(said: dict[str, str]) -> None:
    assert resolve(["--role=ps", "--master-addr=a"], {**OPEN_MPI_4, **said}).world.is_task


def test_a_role_is_for_no_task_of_several_programs() -> None:
    several = {**OPEN_MPI_4, "OMPI_NUM_APP_CTX": "2"}
    assert resolve(["--master-addr=a"], several).world.is_task
    with pytest.raises(UsageError, match="several programs"):
        resolve(["--role=ps", "--master-addr=a"], several)
