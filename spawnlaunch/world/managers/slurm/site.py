"""How a site's Slurm ends steps: slurm.conf, where this node can read it, and the step's own srun.

slurm.conf is found as srun finds it: by SLURM_CONF, else in /etc/slurm, else where slurmd keeps the
copy that it was sent. Names are in any case and several may stand in a line, `#` begins a comment,
a backslash joins lines, and `Include FILE` is read in its place (slurm.conf(5); Slurm's
src/common/read_config.c). The last value of a name counts.

A flag of srun leaves no trace in the environment of its tasks. But srun listens on the port that
they are told, and so is found among the processes of its node, which for a step of a batch script
is the node of rank 0.
"""

from __future__ import annotations

import os

from spawnlaunch import reading
from spawnlaunch.node import listeners, proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from spawnlaunch.world import identity

PLACES = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf")
MOST_FILES = 64  # that are included, one by another
KILL_WAIT_S = 30  # the default of KillWait
REPORT_S = 5.0  # of that, for what a launcher says at last

PORTS = ("SLURM_SRUN_COMM_PORT", "SLURM_STEP_LAUNCHER_PORT")
FLAGS = ("--kill-on-bad-exit", "-K")


def kills_on_bad_exit(environ: identity.Environ, variable: str) -> bool:
    """Whether srun ends the step when a task ends badly: by `variable`, slurm.conf, or a flag."""
    if variable in environ:
        return environ[variable] not in ("", "0")
    if value("KillOnBadExit", environ) not in (None, "", "0"):
        return True
    port = next(
        (int(environ[name]) for name in PORTS if reading.is_number(environ.get(name, ""))), None
    )
    for pid in os.listdir("/proc") if port and proc.is_proc_ours() else ():
        is_srun = pid.isdigit() and proc.read(pid, "comm") == "srun\n"
        if is_srun and listeners.has_one_of(pid, listeners.sockets(port or 0, pid)):
            return _says_so(pid, variable)
    return False


def _says_so(srun: str, variable: str) -> bool:
    """What is behind our own name is ours. The flag comes before the variable (srun(1))."""
    for word in (proc.read(srun, "cmdline") or "").split("\0"):
        if os.path.basename(word) == "spawnlaunch":
            break
        if word.startswith(FLAGS):
            return not word.endswith("0")
    return (proc.environ(int(srun)) or {}).get(variable) not in (None, "", "0")


def kill_wait_s(environ: identity.Environ) -> int | None:
    """KillWait: seconds from SIGTERM to SIGKILL; None where there is no slurm.conf to be read."""
    if not os.path.isfile(path(environ)):
        return None
    text = value("KillWait", environ) or ""
    return int(text) if reading.is_number(text, digits=9) else KILL_WAIT_S


def path(environ: identity.Environ) -> str:
    """Where srun looks on this node."""
    named = environ.get("SLURM_CONF")
    return named or next((place for place in PLACES if os.path.exists(place)), PLACES[0])


def value(name: str, environ: identity.Environ) -> str | None:
    """What stands for a name; None: nothing.

    >>> value("KillWait", {"SLURM_CONF": "/dev/zero"})
    """
    found = None
    for line in _lines(path(environ), set()):
        words = line.replace("=", " = ").split()
        for i, word in enumerate(words[:-1]):
            if word.lower() == name.lower() and words[i + 1] == "=":
                found = "".join(words[i + 2 : i + 3])
    return found


def _lines(file: str, seen: set[str]) -> Iterator[str]:
    """The lines of a file and of those that it includes, each file once."""
    if file in seen or len(seen) > MOST_FILES:
        return
    seen.add(file)
    text = reading.file_text(file) or ""
    for line in text.replace("\\\n", " ").splitlines():
        line = line.partition("#")[0]
        word, _, rest = line.strip().partition(" ")
        if word.lower() == "include":
            yield from _lines(os.path.join(os.path.dirname(file), rest.strip()), seen)
        else:
            yield line
