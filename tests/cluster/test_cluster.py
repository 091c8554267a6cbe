"""The cluster that other tests rely on is a real one, and nothing of it outlives its session."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.slurm import REPOSITORY, require_slurm, start
from tests.support.patience import PATIENCE_S
from tests.support.processes import until
from tests.support.required import skip_or_fail

require_slurm()


@pytest.mark.full
def test_four_nodes_are_idle(slurm):
    assert slurm.idle_nodes() == ["node0", "node1", "node2", "node3"]


@pytest.mark.full
def test_a_step_on_two_nodes_sees_two_hosts(slurm):
    step = slurm.run(["srun", "--nodes=2", "--ntasks=3", "--label", "hostname"])
    assert sorted(step.stdout.splitlines()) == ["0: node0", "1: node0", "2: node1"]


@pytest.mark.full
def test_nodes_know_each_other_by_name_and_nobody_else(slurm):
    resolve = (
        "import socket; print(socket.gethostbyname('node3')); socket.gethostbyname('elsewhere')"
    )
    step = slurm.run(["srun", sys.executable, "-c", resolve])
    assert step.stdout == "10.11.12.13\n"
    assert "gaierror" in step.stderr


@pytest.mark.full
def test_a_wrong_address_is_another_host_where_nobody_listens(slurm):
    listen = "import socket; s = socket.create_server(('', 23456)); s.accept()"
    connect = "import socket; socket.create_connection((input(), 23456), 5); print('connected')"
    with slurm.popen(["srun", "--nodelist=node1", sys.executable, "-c", listen]) as server:
        until(lambda: ":5BA0 " in on(slurm, "node1", "cat", "/proc/net/tcp").stdout, "it listens")
        wrong = on(slurm, "node2", sys.executable, "-c", connect, stdin="node2\n")
        right = on(slurm, "node2", sys.executable, "-c", connect, stdin="node1\n")
        server.wait(PATIENCE_S)
    assert "ConnectionRefusedError" in wrong.stderr
    assert right.stdout == "connected\n"


@pytest.mark.full
def test_gloo_sums_over_two_nodes(slurm):
    here = {"MASTER_ADDR": "node0", "MASTER_PORT": "23456"}
    script = REPOSITORY / "tests" / "cluster" / "gloo_sum.py"
    step = slurm.run(["srun", "-N2", "-n4", "-m", "block", sys.executable, script], env=here)
    assert sorted(step.stdout.splitlines()) == [
        "node0 0 6",
        "node0 1 6",
        "node0 2 6",
        "node1 3 6",
    ], step.stderr


@pytest.mark.full
def test_a_heterogeneous_step_is_one_world_of_two_components(slurm):
    show = ["sh", "-c", "echo $SLURM_PROCID/$SLURM_STEP_NUM_TASKS $(hostname)"]
    step = slurm.run(["srun", "-N1", "-n1", *show, ":", "-N1", "-n2", *show])
    assert sorted(step.stdout.splitlines()) == ["0/3 node0", "1/3 node1", "2/3 node1"], step.stderr


@pytest.mark.full
def test_devices_are_shown_to_the_tasks_that_asked_for_them(slurm):
    show = ["sh", "-c", "echo $SLURM_PROCID $CUDA_VISIBLE_DEVICES"]
    step = slurm.run(["srun", "-n2", "--gpus-per-task=1", *show])
    assert sorted(step.stdout.splitlines()) == ["0 0", "1 1"]


@pytest.mark.full
def test_a_batch_job_gives_its_output_and_how_it_ended(slurm):
    job = slurm.sbatch("#!/bin/sh\nhostname\nsrun hostname\nexit 3\n", "--nodes=2")
    assert (job.state, job.exit_status, job.signal) == ("FAILED", 3, 0)
    assert sorted(job.output.split()) == ["node0", "node0", "node1"]


@pytest.mark.full
def test_an_array_gives_the_output_of_every_task(slurm):
    job = slurm.sbatch("#!/bin/sh\necho task $SLURM_ARRAY_TASK_ID\n", "--array=3-5")
    assert sorted(job.output.splitlines()) == ["task 3", "task 4", "task 5"]
    assert job.state == "COMPLETED"


@pytest.mark.full
def test_salloc_runs_its_command_on_the_head_node(slurm):
    allocation = slurm.salloc(["-N2"], ["sh", "-c", "hostname; srun hostname"])
    assert sorted(allocation.stdout.split()) == ["login", "node0", "node1"]


@pytest.mark.full
def test_a_signal_sent_to_srun_reaches_its_tasks(slurm):
    script = "trap 'echo caught; exit 5' USR1; echo ready; while :; do sleep 0.05; done"
    step = slurm.popen(["srun", "sh", "-c", script], stdout=subprocess.PIPE, text=True)
    assert step.stdout.readline() == "ready\n"
    step.send_signal(signal.SIGUSR1)
    output, _ = step.communicate(timeout=PATIENCE_S)
    assert (output, step.returncode) == ("caught\n", 5)


@pytest.mark.full
def test_a_command_killed_by_a_signal_looks_killed_by_it(slurm):
    assert slurm.run(["sh", "-c", "kill -TERM $$"]).returncode == -signal.SIGTERM


@pytest.mark.full
def test_what_a_test_leaves_running_is_cancelled_for_the_next(slurm):
    slurm.submit("#!/bin/sh\nsleep 600\n", "--nodes=4")
    slurm.cancel_all()
    assert slurm.idle_nodes() == list(slurm.nodes)


@pytest.mark.full
def test_jobs_get_the_cpus_they_asked_for_where_the_affinity_plugin_binds():
    if len(os.sched_getaffinity(0)) < 2:
        skip_or_fail("needs two CPUs")
    cluster = start(cpus=2, task_plugin="task/affinity")
    try:
        show = "import os; print(*os.sched_getaffinity(0))"
        step = cluster.run(["srun", "-n2", "--cpu-bind=cores", sys.executable, "-c", show])
    finally:
        cluster.stop()
    assert sorted(step.stdout.split()) == ["0", "1"], step.stderr


@pytest.mark.full
def test_a_configuration_that_slurm_refuses_is_an_error_with_slurms_words():
    with pytest.raises(RuntimeError, match=r"did not start.*NoSuchSetting"):
        start(extra="NoSuchSetting=1")


@pytest.mark.full
def test_two_clusters_run_side_by_side(slurm):
    other = start()
    try:
        outputs = [cluster.run(["srun", "-N4", "hostname"]).stdout for cluster in (slurm, other)]
    finally:
        other.stop()
    assert [sorted(output.split()) for output in outputs] == [list(slurm.nodes)] * 2


@pytest.mark.full
class TestNothingIsLeftBehind:
    """A job is running each time, for it is the processes of jobs that outlive clusters."""

    def test_after_stop(self):
        before = traces()
        cluster = start()
        cluster.submit("#!/bin/sh\nsrun sleep 600\n", "--nodes=2")
        namespace = cluster.pid_namespace()
        until(lambda: "sleep" in processes(namespace), "the step runs")
        cluster.stop()
        assert processes(namespace) == []
        assert traces() == before

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
    def test_after_the_session_is_killed(self, number):
        before = traces()
        session = subprocess.Popen(
            [sys.executable, "-c", SESSION], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
        )
        try:
            namespace = int(session.stdout.readline())
            until(lambda: processes(namespace).count("sleep") == 2, "the step runs")
            session.send_signal(number)
            session.wait(PATIENCE_S)
            until(lambda: processes(namespace) == [], "nothing is left")
        finally:
            session.kill()
            session.wait()
            session.stdout.close()
        assert traces() == before


SESSION = """
import time
from tests.cluster.slurm import start
cluster = start()
step = cluster.popen(["srun", "--nodes=2", "sleep", "600"])
print(cluster.pid_namespace(), flush=True)
time.sleep(600)
"""


def processes(namespace: int) -> list[str]:
    """Names of the processes in the PID namespace with this inode number."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.stat(process / "ns/pid").st_ino == namespace:
                found.append((process / "comm").read_text().strip())
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # ended while we looked, or none of ours
    return found


def traces() -> dict[str, object]:
    """What a cluster could leave on this machine besides processes."""
    watched = ["/run", "/dev/shm", "/var/log", "/var/spool", "/var/lib", "/tmp"]
    return {
        "mounts": Path("/proc/self/mounts").read_text(),
        "devices": sorted(os.listdir("/sys/class/net")),
        "cgroups": sorted(str(path) for path in Path("/sys/fs/cgroup").rglob("*slurm*")),
        "hosts": Path("/etc/hosts").read_bytes(),
        "files": {directory: slurm_files(Path(directory)) for directory in watched},
    }


def slurm_files(directory: Path) -> list[str]:
    return sorted(p.name for p in directory.glob("*") if "slurm" in p.name or "munge" in p.name)


def on(slurm, node: str, *command: str, stdin: str = "") -> subprocess.CompletedProcess:
    """`command` in a step of its own on `node`."""
    return slurm.run(["srun", "--overlap", f"--nodelist={node}", *command], stdin=stdin)
