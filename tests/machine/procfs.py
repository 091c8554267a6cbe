"""What /proc shows of the processes of a simulated node (proc(5))."""

from __future__ import annotations

import errno
import signal
from typing import TYPE_CHECKING

from tests.machine.errors import refused

if TYPE_CHECKING:
    from tests.machine.process import Process

TICKS_PER_S = 100
PF_EXITING, PF_SIGNALED = 0x4, 0x400  # include/linux/sched.h


# Of a node with control groups: where they are mounted, and which is the launch's.
GROUPS = {
    "/proc/mounts": b"cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
    "/proc/self/cgroup": b"0::/job\n",
}


def _process(who: Process, name: str, path: str) -> Process:
    pid = who.pid if name == "self" else int(name) if name.isdigit() else 0
    found = who.node.processes.get(pid)
    if found is None or found is who.node.init:
        raise refused(errno.ENOENT, path)
    return found


def _state(process: Process) -> str:
    if process.state in ("zombie", "gone"):
        return "Z"
    if process.stopped:
        return "T"
    if process.core_until is not None or process.is_exiting:
        return "D"
    return "R" if process.kernel.current is process else "S"


def stat(process: Process) -> bytes:
    code = process.code or 0
    status = -code if code < 0 else code << 8
    fields: list[object] = [0] * 52
    fields[0], fields[1], fields[2] = process.pid, f"({process.comm})", _state(process)
    fields[3] = process.parent.pid if process.parent else 0
    fields[4], fields[5] = process.group, process.session
    fields[8] = 0 if process.dying is None else PF_EXITING | PF_SIGNALED
    fields[19] = 1
    fields[21] = int((process.start - 1000.0) * TICKS_PER_S) + 1000
    fields[51] = status
    return (" ".join(map(str, fields)) + "\n").encode()


def status(process: Process) -> bytes:
    caught = sum(1 << (n - 1) for n, what in process.handlers.items() if callable(what))
    ignored = sum(1 << (n - 1) for n, what in process.handlers.items() if what == signal.SIG_IGN)
    lines = {
        "Name": process.comm,
        "State": f"{_state(process)} ()",
        "Pid": process.pid,
        "PPid": process.parent.pid if process.parent else 0,
        "TracerPid": process.tracer,
        "Uid": f"{process.uid}\t{process.uid}\t{process.uid}\t{process.uid}",
        "NSpid": process.pid,
        "CoreDumping": int(process.core_until is not None),
        "SigBlk": f"{sum(1 << (n - 1) for n in process.blocked):016x}",
        "SigIgn": f"{ignored:016x}",
        "SigCgt": f"{caught:016x}",
    }
    return "".join(f"{name}:\t{value}\n" for name, value in lines.items()).encode()


def read(who: Process, path: str) -> bytes:
    """The content of a file below /proc. Raises OSError."""
    name, _, file = path.removeprefix("/proc/").partition("/")
    if who.node.oom_kills is not None and path in GROUPS:
        return GROUPS[path]
    process = _process(who, name, path)
    parts = file.split("/")
    if parts[0] == "task" and len(parts) == 3 and parts[1] == str(process.pid):
        if parts[2] == "children":
            return "".join(f"{child.pid} " for child in process.children).encode()
        file = parts[2]
    is_zombie = process.state in ("zombie", "gone")
    if file == "stat":
        return stat(process)
    if file == "status":
        return status(process)
    if file == "comm":
        return process.comm.encode() + b"\n"
    if file == "environ":
        pairs = () if is_zombie else process.environ.items()
        return "".join(f"{name}={value}\0" for name, value in pairs).encode()
    if file == "cmdline":
        return b"" if is_zombie else "".join(f"{word}\0" for word in process.command).encode()
    raise refused(errno.ENOENT, path)


def names(who: Process, path: str) -> list[str]:
    """The entries of a directory below /proc. Raises OSError."""
    path = path.rstrip("/")
    if path == "/proc":
        shown = (p for p in who.node.processes.values() if p is not who.node.init)
        return ["self", *(str(process.pid) for process in shown)]
    name, _, rest = path.removeprefix("/proc/").partition("/")
    process = _process(who, name, path)
    if rest == "task":
        return [str(process.pid)]
    if rest == "fd":
        return [str(fd) for fd in process.fds]
    raise refused(errno.ENOENT, path)
