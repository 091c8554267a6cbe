"""Start the launcher as a user does, and look at what its workers report."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
WORKERS = Path(__file__).parent / "workers"  # the scripts that tests launch
HOST = os.uname().nodename
REPORTER = WORKERS / "report.py"
# Without prefixes: most tests look at what workers print as they printed it.
LAUNCHER = (sys.executable, "-m", "spawnlaunch", "--no-prefix")

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
    "SLURM_KILL_BAD_EXIT": "1",
    "GLOO_SOCKET_IFNAME": "eth0",
    "NCCL_SOCKET_IFNAME": "eth0",
}
# Rank 2 of 3 under MPICH, alone on its node.
MPICH_RANK = {"PMI_RANK": "2", "PMI_SIZE": "3", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1"}

# What an outer launcher or a resource manager may have left in the environment of the tests.
FOREIGN = (
    *("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "NODE_RANK", "GROUP_", "TORCHELASTIC_", "PET_"),
    *("SLURM", "OMP_", "OMPI_", "PMI", "MPI_", "PALS_", "FLUX_", "JSM_", "LSB_", "PBS_"),
    *("PE_HOSTFILE", "NSLOTS", "NHOSTS", "JOB_ID", "JOB_COMPLETION_INDEX", "SGE_"),
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
    kept = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
    return {**kept, "PYTHONPATH": str(ROOT), **extra}


def launch(
    *words: object,
    cwd: Path | str = ROOT,
    environ: Mapping[str, str] | None = None,
    timeout_s: float = 120,
) -> subprocess.CompletedProcess[str]:
    """Run the launcher to its end."""
    return subprocess.run(
        [*LAUNCHER, *map(str, words)],
        cwd=cwd,
        env=clean_environ() if environ is None else environ,
        timeout=timeout_s,
        capture_output=True,
        text=True,
        check=False,
    )


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


def processes_with(mark: str) -> list[int]:
    """The pids of all processes whose environment holds `mark`, zombies aside."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark.encode() in (entry / "environ").read_bytes():
                    pids.append(int(entry.name))
            except OSError:
                pass  # it has ended, or is a zombie
    return pids


@contextmanager
def nothing_left_behind(mark: str) -> Iterator[None]:
    """At the end no process may live whose environment holds `mark`."""
    yield
    deadline = time.monotonic() + 60  # SIGKILL has been sent; a busy machine needs a moment
    while (left := processes_with(mark)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not left, [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in left]
