"""Where ranks are at this moment: py-spy asks each, and equal answers are told once.

py-spy is installed beside Python (pip install py-spy) and needs the right to trace: as root, or
where the kernel lets a process trace others of its user (ptrace(2)).
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from spawnlaunch.rollcall import groups
from spawnlaunch.run.hang import sources
from spawnlaunch.watch import sample

PATIENCE_S = 10.0


def told(ranks: Sequence[sample.Sample]) -> list[str]:
    """The roll call of the ranks of a launch, a line for each group, the smallest first."""
    program = sources.find_py_spy()
    if program is None:
        return ["  py-spy is not installed; type pip install py-spy"]
    asked = [(one.rank, _asked(program, one.pid)) for one in ranks]
    return groups.lines(
        groups.Answer(rank, True, "by py-spy", _said(process)) for rank, process in asked
    )


def _asked(program: str, pid: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [program, "dump", "--nonblocking", "--full-filenames", "--pid", str(pid)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _said(process: subprocess.Popen[str]) -> str:
    try:
        return process.communicate(timeout=PATIENCE_S)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return f"py-spy did not answer within {PATIENCE_S:g} s"
