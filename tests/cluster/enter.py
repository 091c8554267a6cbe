"""Run a command on the cluster's head node: ``python enter.py PID COMMAND...``.

PID is the cluster's first process as seen from outside. A process cannot move itself into another
PID namespace, only its children (setns(2)), so this one stays as the parent: it passes on signals
sent to it and ends as the command ends, by exit status or by signal, like the command itself would.
If it is killed outright the command is killed too.

Signals that the terminal sends reach the command anyway, being of the same process group, and are
not passed on a second time: srun takes a second interrupt for "abort".
"""

import ctypes
import os
import signal
import sys

NAMESPACES = ("ipc", "net", "uts", "pid", "mnt")  # mnt last: it changes what /proc is
PR_SET_PDEATHSIG = 1  # prctl(2)
SI_KERNEL = 0x80  # sigaction(2): sent by the kernel, as the terminal's signals are
NOT_FORWARDED = {signal.SIGCHLD, signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT, signal.SIGTSTP}

libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    pid, command = sys.argv[1], sys.argv[2:]
    join(pid)
    waited_for = signal.valid_signals() - (NOT_FORWARDED - {signal.SIGCHLD})
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    child = os.fork()
    if child == 0:
        become(command, unblocked)
    end_like(forward_signals_until_end(child, waited_for))


def join(pid: str) -> None:
    """Enter the namespaces of `pid`, keeping the working directory, by its name."""
    directory = os.getcwd()
    for fd in [os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY) for name in NAMESPACES]:
        if libc.setns(fd, 0) != 0:
            raise OSError(ctypes.get_errno(), "cannot enter the cluster's namespaces")
    os.chdir(directory)


def become(command: list[str], signal_mask: set) -> None:
    """Python's changes to signals undone, so that the command starts as from a shell."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for changed in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(changed, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, signal_mask)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        os._exit(127)


def forward_signals_until_end(child: int, waited_for: set) -> int:
    """The wait status of `child`."""
    while True:
        received = signal.sigwaitinfo(waited_for)
        if received.si_signo != signal.SIGCHLD:
            if received.si_code != SI_KERNEL:
                os.kill(child, received.si_signo)
            continue
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status


def end_like(status: int) -> None:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


if __name__ == "__main__":
    main()
