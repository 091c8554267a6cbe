"""Under a real Slurm: what every rank is told is what is true of all ranks together."""

import json
import sys
from pathlib import Path

import pytest

from tests.cluster.slurm import require_slurm, start
from tests.support.launching import LAUNCHER, WORKERS
from tests.world.asking import Asker, line_behind
from tests.world.truth import check

require_slurm()

PROVER, REPORTER = str(WORKERS / "meet.py"), str(WORKERS / "report.py")
PROVE, REPORT = [*LAUNCHER, PROVER], [*LAUNCHER, REPORTER]


@pytest.mark.parametrize(
    ("options", "world_size"),
    [
        pytest.param("-N2 -n4 -m block", 4, marks=pytest.mark.full),
        ("-N3 -n5 -m cyclic", 5),
        pytest.param("-N2 -n5 -m plane=2", 5, marks=pytest.mark.full),
        pytest.param("-N2 -n3", 3, marks=pytest.mark.full),
        pytest.param("-N1 -n2", 2, marks=pytest.mark.full),
        ("-N4 -n4 --gpus-per-task=1", 4),
        ("-w node2 -n1", 1),
    ],
)
def test_one_task_per_rank(ask: Asker, options: str, world_size: int):
    told = ask.run(["srun", *options.split(), *PROVE])
    check(told.workers, world_size)
    for worker in told.workers:
        assert worker["environ"]["RANK"] == worker["environ"]["SLURM_PROCID"]


@pytest.mark.full
@pytest.mark.parametrize("flags", ["", "--nproc 2"])
def test_ranks_find_each_other_through_torch(ask: Asker, flags: str):
    worker = [*LAUNCHER, *flags.split(), str(WORKERS / "prove.py")]
    check(ask.run(["srun", "-N2", "--ntasks-per-node=1", *worker]).workers, 4 if flags else 2)


@pytest.mark.full
def test_rank_0_is_found_under_an_arbitrary_distribution(ask: Asker, tmp_path: Path):
    hosts = tmp_path / "hosts"
    hosts.write_text("node3\nnode1\nnode1\n")
    step = ["srun", "-N2", "-n3", "-m", "arbitrary", *PROVE]
    workers = ask.run(step, SLURM_HOSTFILE=str(hosts)).workers
    assert [worker["hostname"] for worker in workers] == ["node3", "node1", "node1"]
    assert {worker["environ"]["MASTER_ADDR"] for worker in workers} == {"node3"}
    assert all(worker["proved"] for worker in workers)


@pytest.mark.full
def test_an_arbitrary_distribution_without_its_file_asks_for_the_host(ask: Asker):
    step = ["srun", "-N2", "-n3", "-m", "arbitrary", "-w", "node3,node1,node1", *LAUNCHER]
    told = ask.run([*step, PROVER])
    assert told.status == 2
    assert "type --master-addr HOST" in told.stderr
    workers = ask.run([*step, "--master-addr", "node3", PROVER]).workers
    assert [worker["hostname"] for worker in workers] == ["node3", "node1", "node1"]
    assert all(worker["proved"] for worker in workers)


@pytest.mark.full
def test_rank_0_is_the_first_of_a_host_file_with_comments_and_counts(ask: Asker, tmp_path: Path):
    hosts = tmp_path / "hosts"
    hosts.write_text("# where the ranks go\nnode3*2,node1 # and so on\n")
    told = ask.run(["srun", "-N2", "-n3", "-m", "arbitrary", *PROVE], SLURM_HOSTFILE=str(hosts))
    check(told.workers, 3)
    assert told.workers[0]["hostname"] == "node3"


@pytest.mark.full
def test_a_host_file_that_srun_did_not_go_by_is_no_clue(ask: Asker, tmp_path: Path):
    hosts = tmp_path / "hosts"
    hosts.write_text("node3\nnode1\nnode1\n")
    step = ["srun", "-N2", "-n3", "-m", "arbitrary", "-w", "node1,node1,node3", *LAUNCHER, REPORTER]
    told = ask.run(step, SLURM_HOSTFILE=str(hosts))
    assert told.status == 2
    assert "rank 0 is on node1 (SLURMD_NODENAME)" in told.stderr
    assert "type --master-addr node1" in told.stderr


def test_one_launcher_per_node(ask: Asker):
    told = ask.run(["srun", "-N2", "--ntasks-per-node=1", *LAUNCHER, "--nproc", "2", PROVER])
    check(told.workers, 4)


@pytest.mark.full
def test_a_step_on_some_of_the_jobs_nodes_counts_its_own(ask: Asker):
    step = f"srun -N1 -n2 -w node1 {' '.join(PROVE)}"
    told = ask.sbatch(f"#!/bin/sh\n{step}\n", "-N2", "--ntasks-per-node=2", "-w", "node[0-1]")
    check(told.workers, 2)
    assert told.workers[0]["hostname"] == "node1"


@pytest.mark.full
def test_two_steps_at_once_do_not_meet(ask: Asker):
    step = f"srun -N2 -n2 --overlap --mem=0 {' '.join(PROVE)}"
    told = ask.sbatch(f"#!/bin/sh\n{step} &\n{step} &\nwait\n", "-N2", "--ntasks-per-node=2")
    steps = {worker["environ"]["SLURM_STEP_ID"] for worker in told.workers}
    assert len(steps) == 2
    for step_id in steps:
        check([w for w in told.workers if w["environ"]["SLURM_STEP_ID"] == step_id], 2)
    assert len({worker["environ"]["MASTER_PORT"] for worker in told.workers}) == 2


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (["-w", "node0", "-n1"], ["-w", "node1,node2", "-n3"]),
        (["-w", "node3", "-n1"], ["-w", "node0,node2", "-n3"]),
    ],
    ids=["components in the order of their names", "in another order"],
)
def test_a_heterogeneous_step(ask: Asker, first: list[str], second: list[str]):
    told = ask.run(["srun", *first, *PROVE, ":", *second, *PROVE])
    check(told.workers, 4)
    assert told.workers[0]["hostname"] == first[1]


@pytest.mark.full
def test_one_component_of_a_heterogeneous_job(ask: Asker):
    told = ask.sbatch(
        "#!/bin/sh\n#SBATCH -w node3 -n1\n#SBATCH hetjob\n#SBATCH -w node1 -n2\n"
        f"srun --het-group=1 {' '.join(REPORT)}\n"
    )
    check(told.workers, 2)
    assert told.workers[0]["hostname"] == "node1"


@pytest.mark.full
def test_every_task_of_an_array_is_a_job_of_its_own(ask: Asker):
    script = f"#!/bin/sh\nsrun -N2 -n2 {' '.join(REPORT)}\n"
    told = ask.sbatch(script, "-N2", "--ntasks-per-node=1", "--array=0-1")
    ports = set()
    for index in ("0", "1"):
        workers = [w for w in told.workers if w["environ"]["SLURM_ARRAY_TASK_ID"] == index]
        check(workers, 2)
        ports.add(workers[0]["environ"]["MASTER_PORT"])
    assert len(ports) == 2


@pytest.mark.full
def test_consecutive_steps_and_jobs_have_different_ports(ask: Asker):
    script = f"#!/bin/sh\nsrun {' '.join(REPORT)}\nsrun {' '.join(REPORT)}\n"
    workers = [*ask.sbatch(script).workers, *ask.sbatch(script).workers]
    ports = [int(worker["environ"]["MASTER_PORT"]) for worker in workers]
    assert len(ports) == len(set(ports)) == 4
    assert all(20_000 <= port < 29_000 for port in ports)


@pytest.mark.full
def test_a_task_that_sees_one_device_keeps_its_local_rank_and_says_what_fails(ask: Asker):
    step = ["srun", "-N1", "-n2", "--gpus-per-task=1", *LAUNCHER]
    told = ask.run([*step, REPORTER])
    assert [w["environ"]["LOCAL_RANK"] for w in told.workers] == ["0", "1"]
    assert [w["environ"]["CUDA_VISIBLE_DEVICES"] for w in told.workers] == ["0", "1"]
    assert told.stderr.count("--virtual-local-rank makes LOCAL_RANK 0") == 1
    told = ask.run([*step, "--virtual-local-rank", REPORTER])
    assert [w["environ"]["LOCAL_RANK"] for w in told.workers] == ["0", "0"]
    assert [w["environ"]["CUDA_VISIBLE_DEVICES"] for w in told.workers] == ["0", "1"]


@pytest.mark.parametrize("flags", ["", "--nproc 2"])
def test_a_batch_script_of_two_nodes_is_told_that_srun_is_missing(ask: Asker, flags: str):
    script = f"#!/bin/sh\n{' '.join(LAUNCHER)} {flags} {REPORTER}\n"
    told = ask.sbatch(script, "-N2", "--ntasks-per-node=2")
    assert told.status == 2
    assert "srun is missing; type srun " in told.stdout
    assert told.workers == []


@pytest.mark.full
def test_a_batch_script_that_a_task_has_submitted_is_nobodys_rank(ask: Asker, tmp_path: Path):
    script, explanation = tmp_path / "script", tmp_path / "explanation"
    script.write_text(f"#!/bin/sh\n{' '.join(LAUNCHER)} --explain=json --nproc 3 {REPORTER}\n")
    submit = f"sbatch --wait -N1 -n1 -o {explanation} {script}"
    ask.run(["srun", "-n2", "sh", "-c", f"test $SLURM_PROCID = 1 || {submit}"])
    found = json.loads(explanation.read_text())
    assert found["mode"] == "local"
    assert found["world"]["world_size"] == 3


@pytest.mark.full
def test_a_shell_on_no_node_of_its_job_is_told_so(ask: Asker):
    shell = ["salloc", "--quiet", "-N1", "-n1", "-w", "node2"]
    told = ask.run([*shell, *LAUNCHER, "--nproc", "2", REPORTER])
    assert "(SLURM_JOB_NODELIST=node2)" in told.stderr
    line = line_behind("to run there, type", told.stderr)
    told = ask.run([*shell, "bash", "-c", line])
    assert [worker["hostname"] for worker in told.workers] == ["node2", "node2"]
    assert "no node of its job" not in told.stderr


@pytest.mark.parametrize("submit", ["sbatch", "salloc"])
def test_a_shell_of_a_job_on_one_node_is_local_mode(ask: Asker, submit: str):
    command = [*LAUNCHER, "--nproc", "2", PROVER]
    if submit == "sbatch":
        told = ask.sbatch(f"#!/bin/sh\n{' '.join(command)}\n", "-N1", "-n2")
    else:
        told = ask.run(["salloc", "--quiet", "-N1", "-n2", *command])
    assert [w["environ"]["WORLD_SIZE"] for w in told.workers] == ["2", "2"]
    assert {w["environ"]["MASTER_ADDR"] for w in told.workers} == {"127.0.0.1"}
    assert all(worker["proved"] for worker in told.workers)


@pytest.mark.full
def test_a_job_of_four_tasks_without_srun_is_told_so(ask: Asker):
    told = ask.run(["salloc", "--quiet", "-N1", "-n4", *REPORT])
    assert told.status == 2
    assert f"srun is missing; type srun {' '.join(REPORT)}" in told.stderr


@pytest.mark.full
def test_a_shell_made_by_pty_is_nobodys_rank(ask: Asker, tmp_path: Path):
    explanation = tmp_path / "explanation"
    explain = f"{' '.join(LAUNCHER)} --explain=json {REPORTER} > {explanation}"
    ask.run(["script", "-qec", f"srun -n1 --pty sh -c '{explain}'", "/dev/null"])
    found = json.loads(explanation.read_text())
    assert found["mode"] == "local"
    assert found["world"]["world_size"] == 1


@pytest.mark.full
def test_preserve_env_does_not_make_a_step_larger_than_it_is(ask: Asker):
    step = ["srun", "--preserve-env", "-n1", *REPORT]
    (worker,) = ask.run(["salloc", "--quiet", "-N1", "-n4", *step]).workers
    assert worker["environ"]["SLURM_NTASKS"] == "4"
    assert worker["environ"]["WORLD_SIZE"] == "1"


@pytest.mark.full
def test_nproc_in_a_step_with_several_tasks_shows_both_ways(ask: Asker):
    told = ask.run(["srun", "-N1", "-n2", *LAUNCHER, "--nproc", "2", REPORTER, "a"])
    assert told.status == 2
    launcher = " ".join(LAUNCHER)
    assert f"srun --nodes=1 --ntasks=2 {launcher} {REPORTER} a" in told.stderr
    per_node = "srun --nodes=1 --ntasks=1 --ntasks-per-node=1 --cpus-per-task=2"
    assert f"{per_node} {launcher} --nproc=2 {REPORTER} a" in told.stderr


@pytest.mark.full
def test_workers_take_the_place_of_their_launchers(ask: Asker):
    parent = ["--no-python", "sh", "-c", "ps -o comm= -p $PPID"]
    told = ask.run(["srun", "-n2", *LAUNCHER, *parent])
    assert told.stdout.split() == ["slurmstepd", "slurmstepd"]


@pytest.mark.parametrize("status", [3, 77])
def test_the_exit_status_of_a_task_is_sruns(ask: Asker, status: int):
    told = ask.run(["srun", "-n1", *LAUNCHER, "--no-python", "sh", "-c", f"exit {status}"])
    assert told.status == status


@pytest.mark.full
def test_node_mode_names_the_trap_of_inherited_slurm_variables(ask: Asker):
    node = ["srun", "-N2", "--ntasks-per-node=1", *LAUNCHER, "--nproc", "2"]
    told = ask.run([*node, REPORTER])
    assert told.stderr.count("type --rewrite-slurm-env") == 1
    assert [w["environ"]["SLURM_PROCID"] for w in told.workers] == ["0", "0", "1", "1"]
    told = ask.run([*node, "--rewrite-slurm-env", REPORTER])
    assert "--rewrite-slurm-env" not in told.stderr
    assert [w["environ"]["SLURM_PROCID"] for w in told.workers] == ["0", "1", "2", "3"]
    assert [w["environ"]["SLURM_LOCALID"] for w in told.workers] == ["0", "1", "0", "1"]
    assert {w["environ"]["SLURM_NTASKS"] for w in told.workers} == {"4"}


@pytest.mark.full
def test_stale_variables_of_an_outer_launcher_are_replaced_and_said(ask: Asker):
    stale = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "elsewhere", "MASTER_PORT": "1"}
    told = ask.run(["srun", "-N2", "-n2", *PROVE], **stale)
    check(told.workers, 2)
    assert told.stderr.count("replaced what an outer") == 1


@pytest.mark.full
def test_an_exported_master_is_kept_where_the_ranks_agree(ask: Asker):
    export = (
        "export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NPROCS "
        "MASTER_ADDR=node0 MASTER_PORT=25900"
    )
    told = ask.run(["srun", "-N2", "-n2", "sh", "-c", f"{export}; exec {' '.join(PROVE)}"])
    check(told.workers, 2)
    assert {worker["environ"]["MASTER_PORT"] for worker in told.workers} == {"25900"}
    assert "replaced" not in told.stderr


@pytest.mark.full
@pytest.mark.parametrize(
    ("flag", "value"),
    [
        *(("--tee", "3"), ("--ranks-filter", "0"), ("--local-ranks-filter", "0")),
        *(("--max-restarts", "3"), ("--timeout", "3"), ("--preload", "re"), ("--result", "r.json")),
    ],
)
def test_flags_that_need_a_parent_are_refused_in_task_mode(ask: Asker, flag: str, value: str):
    told = ask.run(["srun", "-n1", *LAUNCHER, flag, value, REPORTER])
    assert told.status == 2
    assert f"{flag} needs a launcher that stays" in told.stderr
    assert "--ntasks-per-node=1" in told.stderr


@pytest.mark.full
def test_redirects_work_without_a_parent(ask: Asker, tmp_path: Path):
    logs = tmp_path / "logs"
    redirects = ["--redirects", "1", "--log-dir", logs]
    say = ["--no-python", "sh", "-c", "echo rank $RANK; echo error >&2"]
    told = ask.run(["srun", "-N2", "-n2", *LAUNCHER, *redirects, *say])
    assert told.stdout == ""
    assert told.stderr.count("error") == 2
    outputs = sorted(logs.glob("*/attempt_0/*/stdout.log"))
    assert [output.read_text() for output in outputs] == ["rank 0\n", "rank 1\n"]


@pytest.mark.full
def test_an_error_file_is_the_ranks_own_in_task_mode(ask: Asker):
    step = ["srun", "-n2", *REPORT]
    workers = ask.run(step, TORCHELASTIC_ERROR_FILE="/tmp/error.json").workers
    files = [worker["environ"]["TORCHELASTIC_ERROR_FILE"] for worker in workers]
    assert files == ["/tmp/error.json.0", "/tmp/error.json.1"]
    for worker in ask.run(step).workers:
        assert "TORCHELASTIC_ERROR_FILE" not in worker["environ"]


@pytest.mark.full
def test_a_host_name_without_an_address_gets_the_interface_towards_rank_0(ask: Asker):
    lose_name = f"hostname lost$SLURM_PROCID; exec {' '.join(PROVE)}"
    told = ask.run(["srun", "-N2", "-n2", "unshare", "--uts", "sh", "-c", lose_name])
    assert [worker["proved"] for worker in told.workers] == [True, True]
    for worker in told.workers:
        assert worker["environ"]["GLOO_SOCKET_IFNAME"] == worker["environ"]["NCCL_SOCKET_IFNAME"]
    assert told.stderr.count("; set GLOO_SOCKET_IFNAME=") == 2


@pytest.mark.full
def test_a_port_in_use_names_the_flag_for_another(ask: Asker):
    listen = (
        "import socket, subprocess, sys; s = socket.create_server(('', 23456));"
        "sys.exit(subprocess.run(sys.argv[1:]).returncode)"
    )
    launch = [*LAUNCHER, "--master-port", "23456", REPORTER]
    told = ask.run(["srun", "-n1", sys.executable, "-c", listen, *launch])
    assert told.status == 2
    assert "port 23456" in told.stderr
    assert "type --master-port N" in told.stderr


@pytest.mark.full
def test_ports_that_slurm_reserves_are_used(tmp_path: Path):
    cluster = start(extra="MpiParams=ports=21000-21999\n")
    try:
        told = Asker(cluster, tmp_path).run(["srun", "-N2", "-n2", *REPORT])
    finally:
        cluster.stop()
    check(told.workers, 2)
    reserved = told.workers[0]["environ"]["SLURM_STEP_RESV_PORTS"].partition("-")[0]
    assert told.workers[0]["environ"]["MASTER_PORT"] == reserved


def test_explain_starts_nothing_and_names_its_sources(ask: Asker, tmp_path: Path):
    outputs = f"--output={tmp_path}/explanation.%t"
    told = ask.run(["srun", "-N2", "-n3", outputs, *LAUNCHER, "--explain=json", REPORTER])
    assert (told.status, told.workers) == (0, [])
    for rank in range(3):
        found = json.loads((tmp_path / f"explanation.{rank}").read_text())
        assert found["mode"] == "task"
        assert found["world"]["rank"] == rank
        assert found["world"]["master_addr"] == "node0"
        assert found["sources"]["rank"]["source"] == "SLURM_PROCID"
        assert found["sources"]["world_size"]["lost"][0]["source"] == "SLURM_NTASKS"
        (worker,) = found["workers"]
        assert worker["rank"] == rank
        assert worker["env"]["RANK"] == str(rank)
        assert worker["command"][1:] == ["-u", REPORTER]
