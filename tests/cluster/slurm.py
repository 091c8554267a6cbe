"""A real Slurm on this machine: munged, slurmctld and four slurmd, each node a host of its own.

The nodes have their own host names, addresses and network devices, so that a wrong master address
really fails. Nothing of it can be seen from outside, and nothing outlives the process that started
it, even one killed by SIGKILL: see inside.py.

    slurm = start()
    slurm.run(["srun", "-N2", "-n4", sys.executable, "train.py"]).stdout
    slurm.sbatch("#!/bin/sh\\nsrun hostname\\n", "--nodes=2").output
    slurm.stop()

Tests take the ``slurm`` fixture, which is started once per session.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.cluster import configuration
from tests.support.patience import PATIENCE_S
from tests.support.required import require_programs, require_root

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
UNSHARE = ["unshare", "--fork", "--pid", "--mount", "--net", "--uts", "--ipc"]
PYTHON = [sys.executable, "-I", "-S"]  # no site packages: enter.py runs once per command
POLL_S = 0.05
OUTER_SLURM = ("SLURM", "SBATCH_", "SALLOC_")
OVER = {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "TIMEOUT"}


class BatchJob(NamedTuple):
    """A finished batch job. Of an array: all outputs one after the other, the worst status."""

    job_id: str
    state: str
    exit_status: int
    signal: int  # 0 if it ended by itself
    output: str


def require_slurm() -> None:
    """To be called at the top of a test module: one line says why the module is skipped."""
    require_programs(
        "slurmctld", "slurmd", "srun", "munged", package="slurmctld slurmd slurm-client munge"
    )
    require_programs("unshare", "nsenter", "ip", package="util-linux iproute2")
    require_root()


def start(*, cpus: int = 8, task_plugin: str = "task/none", extra: str = "") -> "Slurm":
    """Start a cluster and return when its nodes are idle.

    ``start(cpus=2, task_plugin="task/affinity")`` binds tasks for real, to the CPUs there are.
    `extra` is appended to slurm.conf. Raises RuntimeError with the daemons' last words.
    """
    shape = configuration.Shape(cpus, task_plugin, extra)
    names = ("CONF", "HOSTS", "LOGS", "JOBS", "HEAD", "ADDRESSES", "PREFIX_BITS")
    plan = {name.lower(): getattr(configuration, name) for name in names}
    plan["files"] = configuration.files(shape)
    process = subprocess.Popen(
        [*UNSHARE, *PYTHON, str(HERE / "inside.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # an interrupt from the keyboard is for the tests, which end it
        text=True,
    )
    with suppress(BrokenPipeError):  # unshare refused; it has said why
        process.stdin.write(json.dumps(plan) + "\n")
        process.stdin.flush()
    answer = process.stdout.readline().strip()
    slurm = Slurm(process, answer)
    if not answer.isdigit():
        slurm.stop()
        raise RuntimeError(f"Slurm did not start: {answer or 'see the error above'}")
    return slurm


class Slurm:
    """Commands typed on the head node of a running cluster."""

    nodes = configuration.NODES

    def __init__(self, process: subprocess.Popen, first_pid: str) -> None:
        self._process = process
        self._first_pid = first_pid
        self._submitted = 0

    def popen(self, command: list, *, env: dict | None = None, **options) -> subprocess.Popen:
        """Start `command`, with `env` added to the environment; `options` are Popen's.

        A process that is killed takes its command with it: see enter.py.
        """
        return subprocess.Popen(
            [*PYTHON, str(HERE / "enter.py"), self._first_pid, *map(str, command)],
            env={**self.environment(), **(env or {})},
            **{"cwd": REPOSITORY, "stdin": subprocess.DEVNULL, **options},
        )

    def run(
        self,
        command: list,
        *,
        env: dict | None = None,
        timeout: float = PATIENCE_S,
        stdin: str = "",
        **options,
    ) -> subprocess.CompletedProcess:
        """Run `command` to its end. Raises subprocess.TimeoutExpired, with what it had written."""
        pipe = subprocess.PIPE
        pipes = {"stdin": pipe, "stdout": pipe, "stderr": pipe, "text": True}
        with self.popen(command, env=env, **{**pipes, **options}) as process:
            try:
                output, errors = process.communicate(stdin, timeout=timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return subprocess.CompletedProcess(command, process.returncode, output, errors)

    def salloc(self, options: list, command: list, **run_options) -> subprocess.CompletedProcess:
        """Run `command` on the head node while an allocation made with `options` is held."""
        return self.run(["salloc", "--quiet", *options, *command], **run_options)

    def sbatch(
        self,
        script: str | Path,
        *options: str,
        arguments: Sequence[str] = (),
        env: dict | None = None,
        timeout: float = PATIENCE_S,
    ) -> BatchJob:
        """Submit `script`, see submit, and wait until it is over."""
        self._submitted += 1
        outputs = f"{configuration.JOBS}/{self._submitted}"
        self.inside(outputs).mkdir()
        output = f"--output={outputs}/%j"
        job_id = self.submit(script, output, *options, arguments=arguments, env=env)
        state, exit_status, signal = self.wait_for(job_id, timeout)
        files = sorted(self.inside(outputs).iterdir(), key=lambda file: int(file.name))
        output = "".join(file.read_text() for file in files)
        return BatchJob(job_id, state, exit_status, signal, output)

    def submit(
        self,
        script: str | Path,
        *options: str,
        arguments: Sequence[str] = (),
        env: dict | None = None,
    ) -> str:
        """Submit `script` and return its job id at once; its output goes where `options` say.

        `script` is the text of one, or the path of a file, which can have `arguments`.
        """
        command = ["sbatch", "--parsable", "--output=/dev/null", *options]
        text = script
        if isinstance(script, Path):
            command, text = [*command, str(script), *arguments], ""
        submitted = self.run(command, env=env, stdin=text)
        if submitted.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {submitted.stderr}")
        return submitted.stdout.strip().partition(";")[0]

    def cancel_all(self) -> None:
        """Cancel every job and wait until every node is idle again."""
        self.run(["scancel", "--quiet", "--user=root"])
        deadline = time.monotonic() + PATIENCE_S
        while len(self.idle_nodes()) < len(self.nodes):
            if time.monotonic() > deadline:
                raise TimeoutError(self.run(["squeue"]).stdout + self.run(["sinfo", "-l"]).stdout)
            time.sleep(POLL_S)

    def idle_nodes(self) -> list[str]:
        idle = self.run(["sinfo", "--noheader", "--Node", "--states=idle", "--format=%N"])
        return idle.stdout.split()

    def inside(self, path: str) -> Path:
        """Where a file of the head node is found from outside; only /run and /dev/shm differ."""
        return Path(f"/proc/{self._first_pid}/root{path}")

    def pid_namespace(self) -> int:
        """The inode number that tells the cluster's processes from all others."""
        return os.stat(f"/proc/{self._first_pid}/ns/pid").st_ino

    def environment(self) -> dict[str, str]:
        """What commands get: the session's environment, this configuration, this repository.

        Not what an outer Slurm set, should the tests themselves run in a job.
        """
        session = {k: v for k, v in os.environ.items() if not k.startswith(OUTER_SLURM)}
        search = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
        return {**session, "SLURM_CONF": configuration.CONF, "PYTHONPATH": search}

    def stop(self) -> None:
        """End the cluster and everything that runs in it; returns when it is gone."""
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def job(self, job_id: str) -> dict[str, str]:
        """What scontrol(1) shows of a job that is no array, by the names that it uses."""
        (line,) = self._show(job_id)
        return line

    def _show(self, job_id: str) -> list[dict[str, str]]:
        """One for every job of an array, or every component of a heterogeneous job."""
        shown = self.run(["scontrol", "--oneliner", "show", "job", job_id]).stdout.splitlines()
        return [dict(field.partition("=")[::2] for field in job.split(" ")) for job in shown]

    def wait_for(self, job_id: str, timeout: float = PATIENCE_S) -> tuple[str, int, int]:
        """(state, exit status, signal) when no task of the job runs any more."""
        deadline = time.monotonic() + timeout
        while True:
            jobs = self._show(job_id)
            if jobs and all(job["JobState"] in OVER for job in jobs):
                worst = max(jobs, key=lambda job: [int(n) for n in job["ExitCode"].split(":")])
                status, signal = worst["ExitCode"].split(":")
                return worst["JobState"], int(status), int(signal)
            if time.monotonic() > deadline:
                raise TimeoutError(f"job {job_id} after {timeout} s: {jobs}")
            time.sleep(POLL_S)


def processes_in(namespace: int) -> list[Path]:
    """Directories in /proc of the processes in the PID namespace with this inode number."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):  # none of ours
            if os.stat(process / "ns/pid").st_ino == namespace:
                found.append(process)
    return found
