"""Refuse system calls to a program, as a container does: a seccomp filter, which children inherit.

Sources: seccomp(2); include/uapi/linux/seccomp.h, filter.h and bpf_common.h; the numbers are those
of arch/x86/entry/syscalls/syscall_64.tbl.
"""

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Callable, Mapping

# The calls that launches make, as strace(1) names them.
NUMBERS = {
    "read": 0, "write": 1, "open": 2, "close": 3, "stat": 4, "fstat": 5, "lstat": 6, "poll": 7,
    "lseek": 8, "mmap": 9, "mprotect": 10, "munmap": 11, "brk": 12, "rt_sigaction": 13,
    "rt_sigprocmask": 14, "rt_sigreturn": 15, "ioctl": 16, "pread64": 17, "pwrite64": 18,
    "access": 21, "madvise": 28, "dup": 32, "dup2": 33, "nanosleep": 35, "setitimer": 38,
    "getpid": 39,
    "socket": 41, "connect": 42, "sendto": 44, "recvfrom": 45, "sendmsg": 46, "recvmsg": 47,
    "shutdown": 48, "bind": 49, "listen": 50, "getsockname": 51, "getpeername": 52,
    "socketpair": 53, "setsockopt": 54, "getsockopt": 55, "clone": 56, "fork": 57, "vfork": 58,
    "execve": 59, "exit": 60, "wait4": 61, "kill": 62, "uname": 63, "fcntl": 72, "fsync": 74,
    "ftruncate": 77, "getcwd": 79, "rename": 82, "mkdir": 83, "rmdir": 84, "unlink": 87,
    "readlink": 89, "fchmod": 91, "fchown": 93, "umask": 95, "getrlimit": 97, "getrusage": 98,
    "sysinfo": 99, "getuid": 102, "getgid": 104, "geteuid": 107, "getegid": 108, "setpgid": 109,
    "getppid": 110, "getpgrp": 111, "setsid": 112, "getpgid": 121, "getsid": 124,
    "sigaltstack": 131, "getpriority": 140, "setpriority": 141,
    "prctl": 157, "arch_prctl": 158, "gettid": 186, "futex": 202, "sched_setaffinity": 203,
    "sched_getaffinity": 204, "getdents64": 217, "set_tid_address": 218, "clock_gettime": 228,
    "clock_nanosleep": 230, "exit_group": 231, "epoll_wait": 232, "epoll_ctl": 233,
    "tgkill": 234, "set_mempolicy": 238, "get_mempolicy": 239, "waitid": 247, "openat": 257,
    "mkdirat": 258, "newfstatat": 262, "unlinkat": 263, "renameat": 264, "pselect6": 270,
    "ppoll": 271, "set_robust_list": 273, "epoll_pwait": 281, "signalfd4": 289, "eventfd2": 290,
    "accept4": 288, "epoll_create1": 291, "dup3": 292, "pipe2": 293, "prlimit64": 302,
    "process_vm_readv": 310, "getrandom": 318, "memfd_create": 319, "statx": 332, "rseq": 334,
    "pidfd_send_signal": 424, "clone3": 435, "pidfd_open": 434, "faccessat2": 439, "mremap": 25,
    "close_range": 436,
}  # fmt: skip

PR_SET_NO_NEW_PRIVS = 38
SYS_SECCOMP, SET_MODE_FILTER = 317, 1
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06  # BPF_LD|BPF_W|BPF_ABS, BPF_JMP|BPF_JEQ|BPF_K, BPF_RET
NUMBER, ARGUMENT = 0, 16  # where both lie in struct seccomp_data
ALLOW, ERRNO = 0x7FFF0000, 0x00050000


def refuser(refused: Mapping[str | tuple[str, int], int]) -> Callable[[], None]:
    """What a process calls to be refused these calls from now on, each with its error number.

    Beside the name of a call may stand its first argument: others are allowed.
    """
    program = []
    for call, error in refused.items():
        name, *arguments = (call,) if isinstance(call, str) else call
        answer = [(RETURN, 0, 0, ERRNO | error)]
        for argument in arguments:
            answer = [(LOAD, 0, 0, ARGUMENT), (EQUAL, 0, 1, argument), *answer]
        program += [(LOAD, 0, 0, NUMBER), (EQUAL, 0, len(answer), NUMBERS[name]), *answer]
    program.append((RETURN, 0, 0, ALLOW))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in program))
    fprog = struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
    library = ctypes.CDLL(None, use_errno=True)

    def refuse() -> None:
        assert code  # kept as long as this function is
        library.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if library.syscall(SYS_SECCOMP, SET_MODE_FILTER, 0, fprog):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    return refuse


def main() -> None:
    """Become a program that is refused one call: CALL PROGRAM ARGS."""
    _, name, *command = sys.argv
    refuser({name: errno.EPERM})()
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
