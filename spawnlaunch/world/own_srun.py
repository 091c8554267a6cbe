"""The srun that started this step, where it runs on this node: what its command line says.

A flag of srun leaves no trace in the environment of its tasks. But srun listens on the port that
they are told, and so is found among the processes of its node, which for a step of a batch script
is the node of rank 0.
"""

from __future__ import annotations

import os

from spawnlaunch.reading import is_number
from spawnlaunch.world.ancestors import are_numbers_ours
from spawnlaunch.world.facts import Environ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

PORTS = ("SLURM_SRUN_COMM_PORT", "SLURM_STEP_LAUNCHER_PORT")
LISTENS = "0A"  # of the states in /proc/net/tcp (proc(5))
FLAG, SHORT = "--kill-on-bad-exit", "-K"


def kills_on_bad_exit(environ: Environ, variable: str) -> bool:
    """Whether it was told to end the step when a task ends badly, by a flag or by `variable`."""
    port = next((int(environ[name]) for name in PORTS if is_number(environ.get(name, ""))), None)
    pid = next((pid for pid in _sruns() if _listens(pid, port)), None) if port else None
    return pid is not None and _says_so(_words(pid, "cmdline"), _words(pid, "environ"), variable)


def _says_so(command: list[str], exports: list[str], variable: str) -> bool:
    """What is behind our own name is ours. The flag comes before the variable (srun(1))."""
    ours = (i for i, word in enumerate(command) if os.path.basename(word) == "spawnlaunch")
    for word in command[: next(ours, len(command))]:
        if word.startswith((FLAG, SHORT)):
            return not word.endswith("0")
    set_to = [text.partition("=")[2] for text in exports if text.startswith(f"{variable}=")]
    return any(text not in ("", "0") for text in set_to)


def _sruns() -> Iterator[str]:
    for entry in os.listdir("/proc") if are_numbers_ours() else ():
        if entry.isdigit() and _words(entry, "comm") == ["srun\n"]:
            yield entry


def _listens(pid: str, port: int) -> bool:
    """Whether the process has a socket that listens on this port of its own network."""
    try:
        held = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
    except OSError:
        return False  # another user's, or it has just ended
    for table in ("net/tcp", "net/tcp6"):
        for line in "".join(_words(pid, table)).splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            is_it = state == LISTENS and int(local.rpartition(":")[2], 16) == port
            if is_it and f"socket:[{inode}]" in held:
                return True
    return False


def _words(pid: str, file: str) -> list[str]:
    """What /proc says, cut at zeros; nothing where it says nothing to us."""
    try:
        with open(f"/proc/{pid}/{file}", errors="replace") as opened:
            return opened.read().rstrip("\0").split("\0")
    except OSError:
        return []
