"""What the site's slurm.conf says, where this node can read it.

It is found as srun finds it: by SLURM_CONF, else in /etc/slurm, else where slurmd keeps the copy
that it was sent. Names are in any case and several may stand in a line, `#` begins a comment, a
backslash joins lines, and `Include FILE` is read in its place (slurm.conf(5); Slurm's
src/common/read_config.c). The last value of a name counts.
"""

from __future__ import annotations

import os

from spawnlaunch.reading import file_text, is_number
from spawnlaunch.world.facts import Environ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

VARIABLE = "SLURM_CONF"
PLACES = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf")
MOST_FILES = 64  # that are included, one by another
KILL_WAIT_S = 30  # the default of KillWait
REPORT_S = 5.0  # of that, for what a launcher says at last


def kills_on_bad_exit(environ: Environ) -> bool:
    """KillOnBadExit: whether srun ends a step when one task ends badly, unless told otherwise."""
    return value("KillOnBadExit", environ) not in (None, "", "0")


def kill_wait_s(environ: Environ) -> int | None:
    """KillWait: seconds from SIGTERM to SIGKILL; None where there is no slurm.conf to be read."""
    if not os.path.isfile(path(environ)):
        return None
    text = value("KillWait", environ) or ""
    return int(text) if is_number(text, digits=9) else KILL_WAIT_S


def longest_grace_s(environ: Environ) -> float | None:
    """What a launcher can give its workers to end and still report before Slurm kills it.

    None where that is not known, or Slurm has not started us.
    """
    wait_s = kill_wait_s(environ) if environ.get("SLURMD_NODENAME") else None
    return None if wait_s is None else wait_s - min(REPORT_S, wait_s / 2)


def path(environ: Environ) -> str:
    """Where srun looks on this node."""
    named = environ.get(VARIABLE)
    return named or next((place for place in PLACES if os.path.exists(place)), PLACES[0])


def value(name: str, environ: Environ) -> str | None:
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
    text = file_text(file) or ""
    for line in text.replace("\\\n", " ").splitlines():
        line = line.partition("#")[0]
        word, _, rest = line.strip().partition(" ")
        if word.lower() == "include":
            yield from _lines(os.path.join(os.path.dirname(file), rest.strip()), seen)
        else:
            yield line
