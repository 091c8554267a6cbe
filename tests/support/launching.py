"""Start the launcher as a user does, or another program, and look at what workers report."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from spawnlaunch.world import managers
from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "spawnlaunch"
WORKERS = ROOT / "tests" / "workers"  # the scripts that tests launch
HOST = os.uname().nodename
REPORTER = WORKERS / "report.py"
FAMILY = WORKERS / "family.py"
# Now and then gloo ends a process with a thread that nobody has joined, under any launcher.
GLOO = "terminate called without an active exception"
NEW_NAME = r"\d{8}T\d{6}Z-[0-9a-f]{8}"  # of a launch, in the name of its log directory
# Without prefixes: most tests look at what workers print as they printed it.
LAUNCHER = (sys.executable, "-m", "spawnlaunch", "--prefix=never")
# sitecustomize.py: a thread that takes signals, as it has blocked none.
THREAD = "import _thread, time\n_thread.start_new_thread(time.sleep, (1e6,))\n"

# As a Python without ctypes, or one on macOS, sees the kernel: then there is no guard.
BARE = (
    "import os, _signal, select, sys\n"
    "del os.pidfd_open, _signal.pidfd_send_signal, select.epoll, os.waitid\n"
    "from spawnlaunch.base import machine\n"
    "machine.IS_LINUX = False\n"
    "from spawnlaunch.__main__ import launch\n"
    "sys.exit(launch())\n"
)
WITHOUT_GUARD = (sys.executable, "-c", BARE, "--prefix=never")

# Task 2 of `srun -N2 -n3`, as Slurm 22.05.8 exports it, with what silences every warning.
SLURM_TASK = {
    "SLURM_JOB_ID": "1000",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NODELIST": "node[0-1]",
    "SLURM_STEP_TASKS_PER_NODE": "2,1",
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
    "SLURM_GTIDS": "2",
    "SLURMD_NODENAME": "node1",
    "SLURM_KILL_BAD_EXIT": "1",
    "GLOO_SOCKET_IFNAME": "eth0",
    "NCCL_SOCKET_IFNAME": "eth0",
}
# Rank 2 of 3 under MPICH, alone on its node.
MPICH_RANK = {"PMI_RANK": "2", "PMI_SIZE": "3", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1"}

# The beginnings of variables that an outer launcher or a resource manager may have left in the
# environment of the tests. Of each manager that of its row is among them.
FOREIGN = (
    *{"".join(variable.partition("_")[:2]) for variable, _, _ in managers.ORDER},
    *("WORLD_SIZE", "LOCAL_", "MASTER_", "NODE_RANK", "GROUP_", "TORCHELASTIC_"),
    *("OMP_", "KMP_", "MKL_", "MPI_", "PMIX_", "SLURMD_"),
    *("PE_HOSTFILE", "NSLOTS", "NHOSTS", "SGE_"),
    "PYTEST_",  # which pytest sets and takes away while threads of a test read the environment
)


def heed_signals() -> None:
    """Give up that signals are ignored, as in a background job of a script, or under nohup.

    Launches inherit that, and keep it. The tests are about launches that have not.
    """
    for signum in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(signum) is signal.SIG_IGN:
            signal.signal(signum, signal.SIG_DFL)


def clean_environ(**extra: str) -> dict[str, str]:
    """This process's environment without any launcher's variables, then `extra`."""
    kept = {k: os.environ[k] for k in os.environ if not k.startswith(FOREIGN)}
    return {**kept, "PYTHONPATH": str(ROOT), **extra}


def open_mpi(directory: Path) -> dict[str, str]:
    """What `mpirun` of Open MPI needs, as root too; no other one may have the directory.

    By default all of a user's share one, which the last of them removes: version 4 fails where that
    comes between its own mkdir and stat.
    """
    session = {"OMPI_MCA_orte_tmpdir_base": str(directory)}
    return session | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def run(
    *command: object,
    environ: Mapping[str, str] | None = None,
    timeout_s: float = PATIENCE_S,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, without any launcher's variables; `options` are subprocess.run's.

    Its text on both streams is kept, unless `options` say where to.
    """
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if "input" not in options:
        pipes["stdin"] = subprocess.DEVNULL  # else it might be a terminal
    return subprocess.run(
        _words(command),
        env=clean_environ() if environ is None else environ,
        timeout=timeout_s,
        **{"cwd": ROOT, "text": True, "check": False, **pipes, **options},
    )


def start(
    *command: object, environ: Mapping[str, str] | None = None, **options: Any
) -> subprocess.Popen[Any]:
    """Start a program, without any launcher's variables; `options` are subprocess.Popen's.

    What it writes to stdout can be read, as text.
    """
    return subprocess.Popen(
        _words(command),
        env=clean_environ() if environ is None else environ,
        **{"cwd": ROOT, "text": True, "stdout": subprocess.PIPE, **options},
    )


def _words(command: Iterable[object]) -> list[str | bytes]:
    return [word if isinstance(word, bytes) else str(word) for word in command]


def launch(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the launcher to its end; `options` are those of `run`."""
    return run(*LAUNCHER, *words, **options)


def explain(*flags: object, **environ: str) -> dict[str, Any]:
    """What --explain=json says of report.py, with these flags in this environment."""
    done = launch("--explain=json", *flags, REPORTER, environ=clean_environ(**environ))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def reports(output: str) -> list[dict[str, Any]]:
    """What workers printed with `workers/reporting.py`, in the order of the ranks."""
    return _by_rank(line for line in output.splitlines() if line.startswith('{"rank"'))


def filed_reports(directory: Path) -> list[dict[str, Any]]:
    """What workers filed in the directory that REPORT_DIR named, in the order of the ranks."""
    return _by_rank(file.read_text() for file in directory.glob("*.json"))


def _by_rank(lines: Iterable[str]) -> list[dict[str, Any]]:
    return sorted(map(json.loads, lines), key=lambda report: report["rank"])
