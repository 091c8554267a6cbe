"""Under a real Slurm: ranks that could disagree agree; copies that nobody wanted are refused."""

import json
import os
from pathlib import Path
from shlex import join, split

import pytest

from tests.cluster.slurm import Slurm, require_slurm
from tests.support.launching import LAUNCHER, ROOT, WORKERS, filed_reports
from tests.world.test_slurm import Asker
from tests.world.truth import check

require_slurm()

# A report costs a tenth of a proof, which needs torch.
PROVER, REPORTER = str(WORKERS / "meet.py"), str(WORKERS / "report.py")
PROVE, REPORT = " ".join([*LAUNCHER, PROVER]), " ".join([*LAUNCHER, REPORTER])
MASTER = "MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1) MASTER_PORT=25900"


@pytest.fixture
def ask(slurm: Slurm, tmp_path: Path) -> Asker:
    return Asker(slurm, tmp_path)


def ports(workers: list[dict]) -> set[str]:
    return {worker["environ"]["MASTER_PORT"] for worker in workers}


@pytest.mark.full
@pytest.mark.parametrize(
    ("exports", "step", "world_size"),
    [
        ("WORLD_SIZE=$SLURM_NTASKS RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID", PROVE, 3),
        ("LOCAL_WORLD_SIZE=2 NODE_RANK=$SLURM_NODEID GROUP_RANK=0", REPORT, 3),
        (
            "NODE_RANK=$SLURM_NODEID",
            f"--ntasks=2 --ntasks-per-node=1 {REPORT.replace(REPORTER, f'--nproc 2 {REPORTER}')}",
            4,
        ),
    ],
    ids=["ranks", "uneven nodes", "one launcher per node"],
)
def test_what_a_batch_script_exports_is_the_same_to_all_ranks(
    ask: Asker, exports: str, step: str, world_size: int
):
    script = f"#!/bin/sh\nexport {MASTER} {exports}\nsrun {step}\n"
    told = ask.sbatch(script, "-N2", "-n3")
    check(told.workers, world_size)
    assert ports(told.workers) == {"25900"}


@pytest.mark.full
def test_what_a_wrapper_sets_in_some_tasks_is_not_taken_and_said(ask: Asker):
    wrapper = f"test $SLURM_PROCID = 2 && export MASTER_PORT=25911; {REPORT}; exit $?"
    told = ask.run(["srun", "-N2", "-n3", "sh", "-c", wrapper])
    check(told.workers, 3)
    assert "25911" not in ports(told.workers)
    assert told.stderr.count("replaced MASTER_PORT=25911") == 1
    assert "type export MASTER_PORT=25911 before srun, or --master-port 25911" in told.stderr
    again = ask.run(["srun", "-N2", "-n3", "sh", "-c", wrapper], MASTER_PORT="25911")
    check(again.workers, 3)
    assert ports(again.workers) == {"25911"}


@pytest.mark.full
def test_a_container_whose_parent_shows_nothing_hands_on_what_srun_gave(ask: Asker, tmp_path: Path):
    inside = f"'. {tmp_path}/variables.$0; {REPORT}; exit $?'"
    container = f"exec env -i PATH=$PATH sh -c {inside} $SLURM_PROCID"
    wrapper = f"export -p > {tmp_path}/variables.$SLURM_PROCID; {container}"
    told = ask.run(["srun", "-N2", "-n3", "sh", "-c", wrapper], MASTER_PORT="25912")
    check(told.workers, 3)
    assert ports(told.workers) == {"25912"}


@pytest.mark.full
def test_every_tasks_own_host_name_is_no_address_for_all(ask: Asker):
    wrapper = f"export MASTER_ADDR=$(hostname) MASTER_PORT=25900; exec {REPORT}"
    told = ask.run(["srun", "-N2", "-n3", "sh", "-c", wrapper])
    check(told.workers, 3)
    assert ports(told.workers) == {"25900"}


@pytest.mark.full
def test_where_only_rank_0_knows_its_host_it_names_it(ask: Asker):
    first = ["-n2", "-m", "arbitrary", "-w", "node3,node1"]
    second = [":", "-n1", "-w", "node2"]
    told = ask.run(["srun", *first, *REPORT.split(), *second, *REPORT.split()])
    assert told.status == 2
    assert "rank 0 is on node3 (SLURMD_NODENAME)" in told.stderr
    assert "type --master-addr node3" in told.stderr
    named = REPORT.replace(REPORTER, f"--master-addr node3 {REPORTER}").split()
    check(ask.run(["srun", *first, *named, *second, *named]).workers, 3)


@pytest.mark.full
def test_explained_ranks_agree(ask: Asker, tmp_path: Path):
    exports = {"MASTER_ADDR": "node0", "MASTER_PORT": "25900", "RANK": "0", "NODE_RANK": "0"}
    exports |= {"LOCAL_WORLD_SIZE": "1", "GROUP_WORLD_SIZE": "1"}
    step = [
        "srun",
        "-N3",
        "-n5",
        f"--output={tmp_path}/explanation.%t",
        *LAUNCHER,
        "--explain=json",
    ]
    ask.run([*step, REPORTER], **exports)
    found = [
        json.loads((tmp_path / f"explanation.{rank}").read_text())["world"] for rank in range(5)
    ]
    assert [world["rank"] for world in found] == list(range(5))
    told = {(each["master_addr"], each["master_port"], each["world_size"]) for each in found}
    assert told == {("node0", 25900, 5)}


CLEAN = ["env", "-i", f"PATH={os.environ['PATH']}", f"PYTHONPATH={ROOT}"]


@pytest.mark.full
def test_a_task_that_lost_its_variables_is_refused_with_lines_that_work(ask: Asker):
    files = ask.new_directory()
    lost = [*CLEAN, f"REPORT_DIR={files}"]
    told = ask.run(["srun", "-N2", "-n3", *lost, *REPORT.split()])
    assert (told.status, filed_reports(files)) == (2, [])
    line = told.stderr.splitlines()[0]
    assert "none of Slurm's variables" in line
    kept = split(line.partition("have Slurm start ")[2].partition("; if each")[0])
    kept[-1] = kept[-1].replace("env -i ", f"env -i PYTHONPATH={ROOT} REPORT_DIR={files} ")
    assert ask.run(["srun", "-N2", "-n3", *kept]).status == 0
    workers = filed_reports(files)
    check(workers, 3)
    for file in files.iterdir():
        file.unlink()
    alone = split(line.partition("job of its own, type ")[2])
    assert ask.run(["srun", "-N1", "-n1", *lost, *alone]).status == 0
    assert [worker["environ"]["WORLD_SIZE"] for worker in filed_reports(files)] == ["1"]


@pytest.mark.full
@pytest.mark.parametrize("start", ["batch", "one task below a shell"])
def test_one_process_that_lost_its_variables_is_alone(ask: Asker, start: str):
    files = ask.new_directory()
    command = join([*CLEAN, f"REPORT_DIR={files}", *LAUNCHER, "--nproc", "2", REPORTER])
    if start == "batch":
        ask.sbatch(f"#!/bin/sh\n{command}\n", "-N1", "-n2")
    else:
        ask.run(["srun", "-n1", "sh", "-c", f"{command}; exit $?"])
    assert [worker["environ"]["WORLD_SIZE"] for worker in filed_reports(files)] == ["2", "2"]


@pytest.mark.full
def test_a_batch_script_of_several_nodes_that_lost_its_variables_is_refused(ask: Asker):
    command = join([*CLEAN, *LAUNCHER, REPORTER])
    told = ask.sbatch(f"#!/bin/sh\n{command}\n", "-N2", "-n3")
    assert (told.status, told.workers) == (2, [])
    assert "has 3 tasks (SLURM_NTASKS) on 2 nodes (SLURM_JOB_NUM_NODES)" in told.stdout
    line = told.stdout.partition("type ")[2].partition(", with nothing")[0]
    check(ask.sbatch(f"#!/bin/sh\n{line}\n", "-N2", "-n3").workers, 3)


@pytest.mark.full
def test_a_count_of_devices_that_may_differ_is_refused_with_a_line_that_works(ask: Asker):
    step = ["srun", "-N2", "--ntasks-per-node=1", "--gpus-per-node=2", *LAUNCHER]
    told = ask.run([*step, "--no-gang", "--nproc", "gpu", REPORTER])
    assert (told.status, told.workers) == (2, [])
    said = "--nproc gpu is 2 on this node, and nothing says how many GPUs each of the 2 nodes has"
    assert said in told.stderr
    line = told.stderr.partition("if each has 2, type ")[2].partition("; if not")[0]
    check(ask.run(split(line)).workers, 4)


@pytest.mark.full
def test_nodes_may_have_unlike_numbers_of_devices(ask: Asker):
    step = f"srun --ntasks-per-node=1 {REPORT.replace(REPORTER, f'--nproc gpu {REPORTER}')}"
    told = ask.sbatch(f"#!/bin/sh\n{step}\n", "-N2", "--ntasks-per-node=1", "--gpus-per-node=2")
    check(told.workers, 4)
    told = ask.sbatch(f"#!/bin/sh\n{step}\n", "-N2", "--ntasks-per-node=1", "--gpus=6")
    check(told.workers, 6)


@pytest.mark.full
def test_a_batch_script_that_exports_all_and_forgets_srun_is_told_so(ask: Asker):
    exports = "WORLD_SIZE=$SLURM_NTASKS RANK=$SLURM_PROCID LOCAL_RANK=0 LOCAL_WORLD_SIZE=2"
    told = ask.sbatch(f"#!/bin/sh\nexport {MASTER} {exports}\n{REPORT}\n", "-N2", "-n3")
    assert [worker["environ"]["WORLD_SIZE"] for worker in told.workers] == ["3"]
    said = "rank 0 waits here for 2 others that nobody has started: srun is missing; type srun "
    assert told.stdout.count(said) == 1
    line = told.stdout.partition("srun is missing; type ")[2].splitlines()[0]
    told = ask.sbatch(f"#!/bin/sh\nexport {MASTER} {exports}\n{line}\n", "-N2", "-n3")
    check(told.workers, 3)


@pytest.mark.full
def test_a_variable_that_is_missing_is_taken_from_the_others_and_said(ask: Asker):
    told = ask.run(["srun", "-N2", "-n3", "env", "-u", "SLURM_PROCID", *REPORT.split()])
    check(told.workers, 3)
    assert told.stderr.count("taken from SLURM_GTIDS and SLURM_LOCALID: SLURM_PROCID") == 1


@pytest.mark.full
def test_variables_that_are_missing_are_taken_from_the_shell_above(ask: Asker):
    lose = "unset SLURM_STEP_ID SLURM_STEPID SLURM_PROCID SLURM_GTIDS"
    told = ask.run(["srun", "-N2", "-n3", "sh", "-c", f"{lose}; {REPORT}; exit $?"])
    check(told.workers, 3)
    assert told.stderr.count("taken from a parent process: ") == 1


@pytest.mark.full
@pytest.mark.parametrize("nproc", ["", "--nproc 2"])
def test_a_variable_that_nothing_tells_is_named_once_for_a_node(ask: Asker, nproc: str):
    lose = ["env", "-u", "SLURM_PROCID", "-u", "SLURM_GTIDS"]
    n = 2 if nproc else 3
    step = ["srun", "-N2", f"-n{n}", *lose, *LAUNCHER, *nproc.split(), REPORTER]
    told = ask.run(step)
    assert (told.status, told.workers) == (2, [])
    assert told.stderr.count("SLURM_PROCID is missing here") == 2  # nodes
    assert "srun is missing" not in told.stderr
    assert "without -u SLURM_PROCID" in told.stderr
    check(ask.run([word for word in step if word not in lose]).workers, 4 if nproc else 3)
