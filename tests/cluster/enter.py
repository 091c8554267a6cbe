"""Run a command on the cluster's head node: ``python enter.py PID COMMAND...``.

PID is the cluster's first process as seen from outside. A process cannot move itself into another
PID namespace, only its children (setns(2)), so this one stays as the parent, and ends with the
command's status, 128 and the number of a signal by which the command ends. If it is killed the
command is killed too. What the terminal sends reaches the command, being of the same process group.
"""

import ctypes
import os
import signal
import sys

NAMESPACES = ("ipc", "net", "uts", "pid", "mnt")  # mnt last: it changes what /proc is
PR_SET_PDEATHSIG = 1  # prctl(2)

libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    pid, command = sys.argv[1], sys.argv[2:]
    join(pid)
    child = os.fork()
    if child == 0:
        become(command)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command decides what an interrupt means
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os._exit(status if status >= 0 else 128 - status)


def join(pid: str) -> None:
    """Enter the namespaces of `pid`, keeping the working directory, by its name."""
    directory = os.getcwd()
    for fd in [os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY) for name in NAMESPACES]:
        if libc.setns(fd, 0) != 0:
            raise OSError(ctypes.get_errno(), "cannot enter the cluster's namespaces")
    os.chdir(directory)


def become(command: list[str]) -> None:
    """Python's changes to signals undone, so that the command starts as from a shell."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for changed in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(changed, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        os._exit(127)


if __name__ == "__main__":
    main()
