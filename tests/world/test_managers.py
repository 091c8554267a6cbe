"""Every manager from what it exports: the recorded environments, and several at once."""

import re
from pathlib import Path
from typing import Any

import pytest

from spawnlaunch.base.errors import UsageError
from spawnlaunch.cli import torchrun
from spawnlaunch.world import managers
from spawnlaunch.world.identity import Manager
from spawnlaunch.world.managers.pods import Kubeflow
from tests.support.launching import REPORTER, explain
from tests.world.recorded import HERE, MANAGERS, RECORDED, Case
from tests.world.resolving import explained, of_job, resolve

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
    assert set(torchrun.POD) == set(Kubeflow.needs)
    known = [variable for variable, _, _ in managers.ORDER]
    assert list(torchrun.CLOSER) == known[: known.index("PET_NNODES")]


@pytest.mark.parametrize("manager", MANAGERS, ids=lambda manager: manager.name)
def test_every_answer_is_to_a_question_that_each_manager_is_asked(manager: type[Manager]) -> None:
    own = {"lists", "remote_shell", "proxy", "size", "is_outside"}  # of one kind alone
    assert {name for name in dir(manager) if name[0] != "_"} <= {*dir(Manager), *own}


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
    assert of_job(found) == ()


@pytest.mark.parametrize("around", [STEP, SALLOC, STEP | {"SLURM_PROCID": "x"}])
def test_open_mpi_inside_a_slurm_job_wins(around: dict[str, str]) -> None:
    found = explained("--master-addr node0", {**around, **OPEN_MPI_4})
    assert found.sources["rank"].source == "OMPI_COMM_WORLD_RANK"
    assert (found.world.mode, found.world.rank, found.world.world_size) == ("task", 2, 4)
    assert of_job(found) == ()


@pytest.mark.parametrize(
    ("hosts", "flags", "said"),
    [
        ("first second", "", True),
        (f"second {HERE}", "", False),
        ("192.0.2.1 192.0.2.2", "", False),  # of which one may be this host
        ("first second", "--node-rank 1", False),
        ("first second", "--standalone", False),
        ("first first", "", False),
    ],
)
def test_a_host_that_its_manager_does_not_list_says_for_whom_it_waits(
    hosts: str, flags: str, said: bool
) -> None:
    environ = {"LSB_JOBID": "8", "LSB_HOSTS": hosts}
    lines = [text for _, text in resolve(f"--nproc 2 {flags}", environ, hostname=HERE).notices]
    found = [line for line in lines if line.startswith("LSF lists 2 hosts (LSB_HOSTS)")]
    assert [line.endswith("alone use --standalone") for line in found] == [True] * said


@pytest.mark.usefixtures("typed_as_launcher")
@pytest.mark.parametrize(
    ("environ", "line"),
    [
        (
            {"PBS_JOBID": "12.server", "PBS_NODEFILE": "{files}/hosts"},
            "pdsh -S -R ssh -w {here},second 'cd {cwd} && python launcher --nnodes=2 "
            "--rdzv-id=12.server --rdzv-endpoint={here}:29400 --nproc=8 {script}'",
        ),
        (
            {"JOB_ID": "12", "NSLOTS": "4", "NHOSTS": "2", "PE_HOSTFILE": "{files}/hosts"},
            "pdsh -S -R exec -w {here},second qrsh -inherit %h 'cd {cwd} && python launcher "
            "--nnodes=2 --rdzv-id=12 --rdzv-endpoint={here}:29400 --nproc=8 {script}'",
        ),
        (
            {"OAR_JOB_ID": "12", "OAR_NODEFILE": "{files}/hosts"},
            "pdsh -S -R exec -w {here},second oarsh %h 'cd {cwd} && python launcher --nnodes=2 "
            "--rdzv-id=12 --rdzv-endpoint={here}:29400 --nproc=8 {script}'",
        ),
        (
            {"LSB_JOBID": "12", "LSB_HOSTS": "{here} second"},
            "blaunch -z '{here} second' python launcher --nproc=8 {script}",
        ),
    ],
    ids=["PBS", "Grid Engine", "OAR", "LSF"],
)
def test_the_first_host_of_a_list_has_the_line_that_starts_launchers_on_all(
    environ: dict[str, str], line: str, tmp_path: Path
) -> None:
    (tmp_path / "hosts").write_text(f"{HERE} 2\nsecond 2\n")
    there = {name: value.format(files=tmp_path, here=HERE) for name, value in environ.items()}
    (warning,) = (text for _, text in resolve("--nproc=8", there, hostname=HERE).notices)
    expected = line.format(here=HERE, cwd=Path.cwd(), script=REPORTER)
    assert "lists 2 hosts" in warning
    assert f"from here, run {expected}; for this machine alone use --standalone" in warning
    for flags in ("--nproc=8 --nnodes=2", "--nproc=8 --no-gang"):
        assert resolve(flags, there, hostname=HERE).notices == ()
    assert resolve("--nproc=8", there, hostname="second").notices == ()
