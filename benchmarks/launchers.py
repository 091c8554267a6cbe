"""Launchers, with the command by which each starts N workers on this machine."""

import os
import shutil
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from tests.support.ports import free_port


class Launcher(NamedTuple):
    """A way to start workers."""

    name: str
    command: Callable[[int, Path], list[str]]  # of a number of workers and their script
    watches: bool = True  # ends the others when one worker fails


def launchers() -> list[Launcher]:
    """Return spawnlaunch first, then the other launchers that are installed."""
    installed = [
        Launcher("spawnlaunch", _spawnlaunch),
        Launcher("shell loop", _shell, watches=False),
    ]
    if find_spec("torch"):
        installed.append(Launcher("torchrun", _torchrun))
    if shutil.which("mpirun"):
        installed.append(Launcher("mpirun", _mpirun))
    if find_spec("torch") and find_spec("accelerate"):
        installed.append(Launcher("accelerate", _accelerate))
    return installed


def _spawnlaunch(n: int, script: Path) -> list[str]:
    return [sys.executable, "-m", "spawnlaunch", "--nproc", str(n), str(script)]


def preloading(n: int, script: Path) -> list[str]:
    """The command of spawnlaunch, with torch imported once for all workers."""
    return [*_spawnlaunch(n, script)[:3], "--preload", "torch", "--nproc", str(n), str(script)]


def _shell(n: int, script: Path) -> list[str]:
    """A minimal loop that starts N processes and waits for them: it pins and watches nothing."""
    there = f"WORLD_SIZE={n} MASTER_ADDR=127.0.0.1 MASTER_PORT={free_port()} OMP_NUM_THREADS=1"
    worker = f'RANK=$i LOCAL_RANK=$i {there} "{sys.executable}" -u "{script}" &'
    return ["sh", "-c", f"i=0; while [ $i -lt {n} ]; do {worker} i=$((i+1)); done; wait"]


def _torchrun(n: int, script: Path) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(n), str(script)]


def _mpirun(n: int, script: Path) -> list[str]:
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    python = [sys.executable, "-u", str(script)]
    return ["mpirun", *as_root, "--oversubscribe", "-n", str(n), *python]


def _accelerate(n: int, script: Path) -> list[str]:
    """The command of accelerate: on CPUs one process, or MPI; on GPUs it uses torchrun."""
    on_cpu, on_gpus = ["--cpu"], ["--multi_gpu"]
    words = ["--num_processes", str(n), "--num_machines", "1", "--mixed_precision", "no"]
    module = [sys.executable, "-m", "accelerate.commands.launch"]
    devices = on_cpu if n == 1 else on_gpus
    return [*module, *devices, *words, "--dynamo_backend", "no", str(script)]
