"""Every manager from what it exports: the recorded environments, and several at once."""

import re
from pathlib import Path
from typing import Any

import pytest

from spawnlaunch.errors import UsageError
from spawnlaunch.torchrun import variables
from spawnlaunch.world import managers
from spawnlaunch.world.identity import Manager
from spawnlaunch.world.managers.tables import KUBEFLOW
from tests.support.launching import explain
from tests.world.recorded import HERE, MANAGERS, RECORDED, Case
from tests.world.resolving import explained, resolve

CASES = {(name, case.name): case for name in RECORDED for case in RECORDED[name].cases()}
STEP, SALLOC = (RECORDED["slurm"].environments[name] for name in ("STEP", "SALLOC"))
OPEN_MPI_4 = RECORDED["openmpi"].environments["OPEN_MPI_4"]
PALS = RECORDED["pals"].environments["PALS"]


def cases(refused: bool) -> list[Any]:
    """The recorded cases that end in a refusal, or in a world."""
    chosen = {key: case for key, case in CASES.items() if bool(case.refused) == refused}
    return [pytest.param(case, id=": ".join(key)) for key, case in chosen.items()]


def test_every_manager_is_recorded() -> None:
    known = {m if m == "slurm" else name.lower() for _, m, name in managers.ORDER}
    assert known == set(RECORDED)


def test_the_variable_of_each_row_is_one_that_its_manager_needs() -> None:
    rows = [(variable, managers.load(m, name).needs) for variable, m, name in managers.ORDER]
    assert [variable for variable, needs in rows if variable not in needs] == []


def test_torchruns_variables_know_kubeflows_pods_and_what_is_found_before_them() -> None:
    assert set(variables.POD) == set(KUBEFLOW.needs)
    known = [variable for variable, _, _ in managers.ORDER]
    assert list(variables.CLOSER) == known[: known.index("PET_NNODES")]


@pytest.mark.parametrize("manager", MANAGERS, ids=lambda manager: manager.name)
def test_every_answer_of_a_table_is_to_a_question_that_is_asked(manager: Manager) -> None:
    assert set(manager.answers) <= set(re.findall(r"\w+", Manager.__doc__ or ""))


@pytest.mark.parametrize("case", cases(refused=False))
def test_the_world_is_what_the_manager_exports(case: Case, tmp_path: Path) -> None:
    found = resolve(case.flags, case.made(tmp_path), hostname=HERE)
    assert found.world.mode == case.mode
    for question, expected in case.world.items():
        value, source = expected if isinstance(expected, list) else (expected, None)
        fact = found.sources[question]
        assert (fact.value, getattr(found.world, question)) == (value, value), question
        assert source in (None, fact.source)


@pytest.mark.usefixtures("typed_as_launcher")
@pytest.mark.parametrize("case", cases(refused=True))
def test_what_is_not_exported_is_asked_for_in_one_line(case: Case, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=re.escape(case.refused)) as refused:
        resolve(case.flags, case.made(tmp_path), hostname=HERE)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("manager", RECORDED)
def test_a_launcher_finds_its_manager(manager: str, tmp_path: Path) -> None:
    case = next(case for key, case in CASES.items() if key[0] == manager and case.mode)
    found = explain(*case.flags.split(), **case.made(tmp_path))
    resolved = resolve(case.flags, case.made(tmp_path), hostname=HERE)
    assert found["mode"] == case.mode
    for question in ("rank", "world_size", "local_rank", "node_rank", "master_addr"):
        assert found["world"][question] == getattr(resolved.world, question)


def test_what_is_unknown_is_not_set_for_the_worker() -> None:
    (worker,) = explain("--master-addr=node0", **RECORDED["hydra"].environments["MPICH"])["workers"]
    assert worker["env"]["RANK"] == "2"
    assert not {"NODE_RANK", "GROUP_RANK", "GROUP_WORLD_SIZE"} & set(worker["env"])


def test_pals_variables_of_slurms_own_plugin_are_not_pals() -> None:
    shasta = {k: v for k, v in PALS.items() if k.startswith("PALS_")}
    shasta |= {"PALS_RANKID": "2", "PALS_LOCAL_RANKID": "0", "PALS_LOCAL_SIZE": "1"}
    found = explained("", {**STEP, **shasta})
    assert found.sources["rank"].source == "SLURM_PROCID"
    assert found.world.run_id == "1000.0"
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("around", "said"),
    [
        (STEP, ["Open MPI and Slurm disagree"]),
        ({**SALLOC, "SLURM_NTASKS": "2"}, []),
        (STEP | {"SLURM_PROCID": "x", "SLURM_STEP_NODELIST": "node[0-"}, ["Open MPI and Slurm"]),
    ],
    ids=["a step", "the allocation", "a step that cannot be read"],
)
def test_open_mpi_inside_a_slurm_job_wins(around: dict[str, str], said: list[str]) -> None:
    found = explained("--master-addr node0", {**around, **OPEN_MPI_4})
    assert found.sources["rank"].source == "OMPI_COMM_WORLD_RANK"
    assert (found.world.mode, found.world.rank, found.world.world_size) == ("task", 2, 4)
    assert len(found.warnings) == len(said)
    assert all(map(str.startswith, found.warnings, said))


# enroot conf/hooks/extra/50-slurm-pytorch.sh, where scontrol exists.


@pytest.mark.parametrize("programs", ["", "1", "2"])
def test_a_role_is_for_all_tasks_where_they_have_one_program(programs: str) -> None:
    environ = OPEN_MPI_4 | ({"OMPI_NUM_APP_CTX": programs} if programs else {})
    assert resolve("--master-addr=a", environ).world.is_task
    if programs == "2":
        with pytest.raises(UsageError, match="several programs"):
            resolve("--role=ps --master-addr=a", environ)
    else:
        assert resolve("--role=ps --master-addr=a", environ).world.is_task
