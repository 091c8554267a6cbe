"""What the processes above tell: a task that has lost its variables, and one that has others'."""

import shlex
from pathlib import Path

import pytest

from spawnlaunch.base.errors import UsageError
from spawnlaunch.cli import parsing
from spawnlaunch.world.managers import slurm
from spawnlaunch.world.resolve import refuse_copies
from tests.support.below import below
from tests.support.launching import LAUNCHER, REPORTER, clean_environ, run
from tests.world.resolving import resolve

ON_ONE_NODE = {
    "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node1", "SLURM_JOB_NUM_NODES": "1",
    "SLURM_JOB_CPUS_PER_NODE": "2",
}  # fmt: skip


def refusal(flags: str, environ: dict[str, str]) -> str:
    """What a launch is told; "": nothing."""
    request = parsing.parse([*flags.split(), str(REPORTER)], {}, "python")
    try:
        refuse_copies(request, resolve(flags, environ))
    except UsageError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("parent", "flags", "environ", "terminal", "refused"),
    [
        ("orted", "", {}, None, True),
        ("orted", "--nproc=2", {}, None, True),
        ("hydra_pmi_proxy", "", {}, 1, True),
        ("orted", "", {}, 0, False),  # a person has typed it
        ("orted", "--standalone", {}, None, False),
        ("orted", "", ON_ONE_NODE, None, False),
        ("sh", "", {}, None, False),
    ],
)
def test_who_is_below_a_starter_without_its_variables_is_refused(
    parent: str,
    flags: str,
    environ: dict[str, str],
    terminal: int | None,
    refused: bool,
    tmp_path: Path,
) -> None:
    line = below(parent, lambda: refusal(flags, environ), tmp_path, terminal=terminal)
    assert ("--standalone" in line) == refused
    assert (f"{parent} (pid " in line) == refused


def test_a_script_of_flux_that_starts_no_tasks_is_refused(tmp_path: Path) -> None:
    """flux-shell, or srun's, starts a broker on each node, and one of these the script."""
    for name in ("flux-shell", "flux-broker-0"):
        (tmp_path / name).symlink_to("/bin/bash")
    ask = f"env -u FLUX_JOB_SIZE {shlex.join([*LAUNCHER, str(REPORTER)])} < /dev/null; true"
    broker = f"{shlex.join([f'{tmp_path}/flux-broker-0', '-c', ask])}; true"
    for size in ("1", "2"):
        done = run(tmp_path / "flux-shell", "-c", broker, environ=clean_environ(FLUX_JOB_SIZE=size))
        assert ("a script that lacks the command that starts" in done.stderr) == (size == "2")


STEP = {
    "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_PROCID": "1", "SLURM_LOCALID": "0",
}  # fmt: skip


@pytest.mark.parametrize(
    ("title", "environ", "is_step"),
    [
        ("slurmstepd: [7.0]", STEP, True),
        ("slurmstepd: [7.0]", {}, False),
        ("slurmstepd: [7.1]", STEP, False),  # of a step that has submitted or started this one
        ("slurmstepd: [8.0]", STEP, False),
        ("slurmstepd: [8.0]", STEP | {"SLURM_HET_SIZE": "2"}, True),
        ("slurmstepd: [7.batch]", STEP, False),
        ("slurmstepd: [7.extern]", STEP, False),
        ("slurmstepd: [7.interactive]", STEP, False),
        ("slurmstepd: [7.0]", STEP | {"SLURM_STEP_ID": "4294967290"}, False),
        ("sleep", STEP, True),  # nothing shows it
    ],
)
def test_the_variables_of_another_step_are_no_rank_of_this_one(
    title: str, environ: dict[str, str], is_step: bool, tmp_path: Path
) -> None:
    name = title.partition(":")[0]
    assert below(name, lambda: slurm.is_step(environ), tmp_path, title=title) == is_step


@pytest.mark.parametrize(
    ("leader", "own_group", "environ", "is_shell"),
    [
        ("bash", True, {}, False),
        ("bash", True, {"SLURM_PTY_PORT": "1"}, True),  # typed into `srun --pty bash`
        ("bash", False, {"SLURM_PTY_PORT": "1"}, False),
        ("slurmstepd", True, {"SLURM_PTY_PORT": "1"}, False),  # a task that leads a group
        ("slurmstepd", True, {"SLURM_PTY_PORT": "1", "SLURM_STEP_NUM_TASKS": "1"}, True),
    ],
)
def test_what_is_typed_into_a_shell_of_a_step_is_no_rank(
    leader: str, own_group: bool, environ: dict[str, str], is_shell: bool, tmp_path: Path
) -> None:
    told = below(leader, lambda: slurm.is_shell(STEP | environ), tmp_path, own_group=own_group)
    assert told == is_shell
