"""The same small programs on Linux and in the simulation: what they saw has to be the same.

A program is a function of the door. It notes what it sees, and so may its children, in one file of
text; programs are written such that only one order of notes is possible.
"""

from __future__ import annotations

import _socket
import difflib
import errno
import os
import select
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from spawnlaunch import machine
from tests.machine.descriptors import Null, Regular
from tests.machine.door import Door
from tests.machine.files import Inode
from tests.machine.kernel import Kernel, Node

AT_ONCE = 16

Program = Callable[[Any], None]

PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    PROGRAMS[function.__name__] = function
    return function


def noted(m: Any, what: object) -> None:
    m.write(m.notes, f"{what}\n".encode())


def tried(m: Any, call: Callable[..., Any], *args: Any) -> Any:
    """The result, or the name of the error."""
    try:
        return call(*args)
    except OSError as error:
        return errno.errorcode[error.errno or 0]


def wait_for_byte(m: Any, fd: int) -> None:
    m.read(fd, 1)


def child_ended(m: Any, pid: int) -> None:
    """Note how a child ends."""
    status = m.waitpid(pid, 0)[1]
    noted(m, ("ended", os.waitstatus_to_exitcode(status)))


def started(m: Any, child: Callable[[], object], ready: bool = True) -> int:
    """A child, which has said that it is ready."""
    r, w = m.pipe()

    def run() -> None:
        m.close(r)
        m.say_ready = lambda: m.write(w, b"x")
        child()
        m.exit_now(0)

    pid = m.fork(run)
    m.close(w)
    if ready:
        wait_for_byte(m, r)
    m.close(r)
    return pid


# Signals: what each does to a child that says nothing, ignores, catches or blocks it

SIGNALS = (
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGABRT, signal.SIGUSR1, signal.SIGSEGV,
    signal.SIGPIPE, signal.SIGTERM, signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH, signal.SIGXFSZ,
)  # fmt: skip


def _signalled(signum: int, how: str) -> Program:
    def run(m: Any) -> None:
        def child() -> None:
            if how == "ignored":
                m.signal(signum, signal.SIG_IGN)
            elif how == "default":
                m.signal(signum, signal.SIG_DFL)
            elif how == "caught":
                m.signal(signum, lambda n, _: noted(m, ("caught", n)))
            elif how == "blocked":
                m.signal(signum, signal.SIG_DFL)
                m.pthread_sigmask(signal.SIG_BLOCK, [signum])
            m.say_ready()
            m.sleep(0.2)
            if how == "blocked":
                noted(m, "still here")
                m.pthread_sigmask(signal.SIG_UNBLOCK, [signum])
            noted(m, "at the end")

        pid = started(m, child)
        m.kill(pid, signum)
        child_ended(m, pid)

    return run


for _signum in SIGNALS:
    for _how in ("default", "ignored", "caught", "blocked"):
        PROGRAMS[f"{_signum.name} {_how}"] = _signalled(int(_signum), _how)


def _taken(signum: int, code: int) -> Program:
    """sigtimedwait takes what is blocked; what was ignored before is not kept."""

    def run(m: Any) -> None:
        m.pthread_sigmask(signal.SIG_BLOCK, [signum])
        if code:
            m.signal(signum, signal.SIG_IGN)
        m.kill(m.getpid(), signum)
        m.kill(m.getpid(), signum)
        if code == 2:
            m.signal(signum, signal.SIG_DFL)
        for _ in range(2):
            info = m.sigtimedwait([signum], 0.01)
            noted(m, info and (info.si_signo, info.si_code, info.si_pid == m.getpid()))

    return run


for _signum in SIGNALS:
    for _code in (0, 1, 2):
        PROGRAMS[f"{_signum.name} taken {_code}"] = _taken(int(_signum), _code)


@program
def several_signals_are_taken_by_number(m: Any) -> None:
    waited = [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD]
    m.pthread_sigmask(signal.SIG_BLOCK, waited)
    for signum in waited:
        m.kill(m.getpid(), signum)
    for _ in range(5):
        info = m.sigtimedwait(waited, 0.01)
        noted(m, info and info.si_signo)


@program
def a_timer_sends_sigalrm_once(m: Any) -> None:
    m.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    m.setitimer(signal.ITIMER_REAL, 0.3)
    m.setitimer(signal.ITIMER_REAL, 0.05)
    info = m.sigwaitinfo([signal.SIGALRM])
    noted(m, (info.si_signo, info.si_code))
    noted(m, m.sigtimedwait([signal.SIGALRM], 0.4))
    m.setitimer(signal.ITIMER_REAL, 0.05)
    m.setitimer(signal.ITIMER_REAL, 0)
    noted(m, m.sigtimedwait([signal.SIGALRM], 0.2))


@program
def a_wakeup_descriptor_gets_numbers(m: Any) -> None:
    r, w = m.pipe()
    m.set_blocking(w, False)
    m.set_blocking(r, False)
    m.set_wakeup_fd(w, warn_on_full_buffer=False)
    for signum in (signal.SIGTERM, signal.SIGUSR1):
        m.signal(signum, lambda *_: None)
        m.kill(m.getpid(), signum)
    noted(m, list(m.read(r, 100)))
    noted(m, tried(m, m.read, r, 100))
    m.set_wakeup_fd(-1)


@program
def a_signal_that_is_caught_does_not_end_a_sleep(m: Any) -> None:
    def child() -> None:
        m.signal(signal.SIGUSR1, lambda *_: noted(m, "caught"))
        m.say_ready()
        since = m.monotonic()
        m.sleep(0.3)
        noted(m, m.monotonic() - since >= 0.3)

    pid = started(m, child)
    m.sleep(0.05)
    m.kill(pid, signal.SIGUSR1)
    child_ended(m, pid)


# Stopping and going on


def _stopped(signum: int, ending: int) -> Program:
    def run(m: Any) -> None:
        def child() -> None:
            m.say_ready()
            m.sleep(0.1)
            noted(m, "went on")
            m.sleep(5.0)

        pid = started(m, child)
        m.kill(pid, signum)
        told = m.waitid(os.P_PID, pid, os.WSTOPPED)
        noted(m, told and (told.si_code, told.si_status))
        noted(m, m.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG))
        m.kill(pid, ending)
        if ending == signal.SIGKILL:
            child_ended(m, pid)
            return
        m.sleep(0.3)
        noted(m, m.waitpid(pid, os.WNOHANG) == (0, 0))
        if ending == signal.SIGCONT:
            told = m.waitid(os.P_PID, pid, os.WCONTINUED)
            noted(m, told and (told.si_code, told.si_status))
        else:
            m.kill(pid, signal.SIGCONT)
            child_ended(m, pid)
            return
        m.kill(pid, signal.SIGKILL)
        child_ended(m, pid)

    return run


for _signum in (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU):
    for _ending in (signal.SIGCONT, signal.SIGKILL, signal.SIGTERM):
        PROGRAMS[f"{_signum.name} then {_ending.name}"] = _stopped(int(_signum), int(_ending))


@program
def a_stop_that_is_waited_for_without_taking_it(m: Any) -> None:
    pid = started(m, lambda: (m.say_ready(), m.sleep(5)))
    m.kill(pid, signal.SIGSTOP)
    for options in (os.WNOWAIT, os.WNOWAIT, 0, os.WNOHANG):
        found = m.waitid(os.P_PID, pid, os.WSTOPPED | options)
        noted(m, found and found.si_status)
    m.kill(pid, signal.SIGKILL)
    child_ended(m, pid)


@program
def a_stop_that_was_continued_is_told_no_more(m: Any) -> None:
    pid = started(m, lambda: (m.say_ready(), m.sleep(5)))
    m.kill(pid, signal.SIGSTOP)
    m.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
    m.kill(pid, signal.SIGCONT)
    noted(m, m.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG))
    m.kill(pid, signal.SIGKILL)
    child_ended(m, pid)


@program
def an_orphaned_group_does_not_stop_of_sigtstp(m: Any) -> None:
    def child() -> None:
        m.setsid()
        m.say_ready()
        m.sleep(0.2)
        noted(m, "went on")

    pid = started(m, child)
    m.kill(pid, signal.SIGTSTP)
    child_ended(m, pid)


def _left_alone(signum: int, how: str) -> Program:
    """The leader of a session ends, and leaves a group of it with nobody above in the session."""

    def run(m: Any) -> None:
        m.prctl(36, 1)
        r, w = m.pipe()

        def grandchild() -> None:
            m.setpgid(0, 0)
            caught: list[int] = []
            for each in (signal.SIGHUP, signal.SIGCONT):
                m.signal(each, lambda n, _: caught.append(int(n)))
            m.write(w, b"x")
            m.sleep(1.5)
            noted(m, ("caught", caught))
            m.exit_now(0)

        def child() -> None:
            m.setsid()
            pid = m.fork(grandchild)
            wait_for_byte(m, r)
            if signum:
                m.kill(pid, signum)
                m.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
            if how == "killed":
                m.kill(m.getpid(), signal.SIGKILL)
            m.exit_now(0)

        child_ended(m, m.fork(child))
        child_ended(m, -1)

    return run


for _signum in (0, signal.SIGSTOP, signal.SIGTSTP):
    for _how in ("exits", "is killed"):
        PROGRAMS[f"group left with {int(_signum)}, its parent {_how}"] = _left_alone(
            int(_signum), _how.split()[-1]
        )


@program
def handlers_run_by_number(m: Any) -> None:
    def child() -> None:
        for signum in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            m.signal(signum, lambda n, _: noted(m, ("caught", int(n))))
        m.say_ready()
        m.sleep(1.5)
        noted(m, "at the end")

    pid = started(m, child)
    m.kill(pid, signal.SIGSTOP)
    m.waitid(os.P_PID, pid, os.WSTOPPED)
    for signum in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGTERM):
        m.kill(pid, signum)
    m.kill(pid, signal.SIGCONT)
    child_ended(m, pid)


@program
def who_is_to_die_runs_no_handler(m: Any) -> None:
    def child() -> None:
        m.signal(signal.SIGHUP, lambda *_: noted(m, "caught"))
        m.signal(signal.SIGTERM, signal.SIG_DFL)
        m.say_ready()
        m.sleep(5)

    pid = started(m, child)
    m.kill(pid, signal.SIGSTOP)
    m.waitid(os.P_PID, pid, os.WSTOPPED)
    m.kill(pid, signal.SIGHUP)
    m.kill(pid, signal.SIGTERM)
    m.kill(pid, signal.SIGCONT)
    child_ended(m, pid)


@program
def several_children_that_end_may_send_one_sigchld(m: Any) -> None:
    m.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    pids = [m.fork(lambda n=n: m.exit_now(n)) for n in (1, 2, 3)]
    for pid in pids:
        m.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    noted(m, m.sigtimedwait([signal.SIGCHLD], 5).si_signo)
    noted(m, m.sigtimedwait([signal.SIGCHLD], 0.05))
    for pid in pids:
        child_ended(m, pid)


@program
def what_is_typed_is_for_a_group(m: Any) -> None:
    def child() -> None:
        m.signal(signal.SIGINT, lambda *_: noted(m, "interrupted"))
        m.setpgid(0, 0)
        m.say_ready()
        m.sleep(1.5)
        noted(m, "at the end")

    pid = started(m, child)

    def member() -> None:
        m.signal(signal.SIGINT, signal.SIG_DFL)
        m.setpgid(0, pid)
        m.say_ready()
        m.sleep(5)

    other = started(m, member)
    m.killpg(pid, signal.SIGINT)
    child_ended(m, other)
    child_ended(m, pid)


@program
def a_stopped_process_dies_of_sigkill_only(m: Any) -> None:
    pid = started(m, lambda: (m.say_ready(), m.sleep(5)))
    m.kill(pid, signal.SIGSTOP)
    m.waitid(os.P_PID, pid, os.WSTOPPED)
    m.kill(pid, signal.SIGUSR1)
    m.sleep(0.1)
    noted(m, m.waitpid(pid, os.WNOHANG) == (0, 0))
    m.kill(pid, signal.SIGKILL)
    child_ended(m, pid)


# Ends, orphans, parents


def _ends(code: int) -> Program:
    def run(m: Any) -> None:
        def child() -> None:
            if code < 0:
                m.kill(m.getpid(), -code)
            m.exit_now(code)

        pid = m.fork(child)
        zombie = m.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        noted(m, (zombie.si_status, zombie.si_code == 1))
        noted(m, tried(m, m.kill, pid, 0))
        child_ended(m, pid)
        noted(m, tried(m, m.kill, pid, 0))
        noted(m, tried(m, m.waitpid, pid, 0))
        noted(m, tried(m, m.waitid, os.P_ALL, 0, os.WEXITED | os.WNOHANG))

    return run


for _code in (0, 1, 7, 255, 256, -1, -9, -15, -6, -11):
    PROGRAMS[f"ends with {_code}"] = _ends(_code)


@program
def orphans_come_to_the_nearest_subreaper(m: Any) -> None:
    m.prctl(36, 1)

    def grandchild() -> None:
        m.sleep(0.2)
        noted(m, "orphan")
        m.exit_now(3)

    def child() -> None:
        m.fork(grandchild)
        m.exit_now(0)

    pid = m.fork(child)
    child_ended(m, pid)
    orphan, status = m.waitpid(-1, 0)
    noted(m, (orphan != pid, os.waitstatus_to_exitcode(status)))


@program
def without_a_subreaper_orphans_are_not_ours(m: Any) -> None:
    def child() -> None:
        m.fork(lambda: (m.sleep(0.2), m.exit_now(3)))
        m.exit_now(0)

    child_ended(m, m.fork(child))
    noted(m, tried(m, m.waitpid, -1, 0))


@program
def a_child_does_not_inherit_being_a_subreaper(m: Any) -> None:
    m.prctl(36, 1)

    def child() -> None:
        def middle() -> None:
            m.fork(lambda: (m.sleep(0.2), m.exit_now(4)))
            m.exit_now(0)

        m.waitpid(m.fork(middle), 0)
        noted(m, tried(m, m.waitpid, -1, 0))
        m.exit_now(0)

    child_ended(m, m.fork(child))
    noted(m, os.waitstatus_to_exitcode(m.waitpid(-1, 0)[1]))


def _dies_with_parent(signum: int) -> Program:
    def run(m: Any) -> None:
        m.prctl(36, 1)
        r, w = m.pipe()
        until_its_end, of_child = m.pipe()

        def grandchild() -> None:
            m.signal(signal.SIGUSR1, lambda *_: noted(m, "told"))
            m.prctl(1, signum)
            m.close(of_child)
            m.write(w, b"x")
            m.read(until_its_end, 1)  # on a busy machine it takes long until the child has ended
            m.sleep(1.0)
            noted(m, "still here")
            m.exit_now(0)

        def child() -> None:
            m.fork(grandchild)
            wait_for_byte(m, r)
            m.exit_now(0)

        pid = m.fork(child)
        m.close(of_child)
        status = m.waitpid(pid, 0)[1]  # noted last: the grandchild is told at the same time
        child_ended(m, -1)
        noted(m, ("child", os.waitstatus_to_exitcode(status)))

    return run


for _signum in (signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1, signal.SIGCONT):
    PROGRAMS[f"death signal {_signum.name}"] = _dies_with_parent(int(_signum))


@program
def a_death_signal_is_not_inherited(m: Any) -> None:
    m.prctl(36, 1)
    r, w = m.pipe()

    def grandchild() -> None:
        m.write(w, b"x")
        m.sleep(0.2)
        noted(m, "still here")
        m.exit_now(0)

    def child() -> None:
        m.prctl(1, signal.SIGKILL)
        m.fork(grandchild)
        wait_for_byte(m, r)
        m.exit_now(0)

    child_ended(m, m.fork(child))
    child_ended(m, -1)


@program
def ended_children_are_reaped_in_the_order_of_birth(m: Any) -> None:
    pids = [m.fork(lambda n=n: m.exit_now(n)) for n in (5, 6, 7)]
    m.sleep(0.2)
    for _ in pids:
        found = m.waitid(os.P_ALL, 0, os.WEXITED)
        noted(m, found.si_status)


@program
def ignoring_sigchld_leaves_no_zombies(m: Any) -> None:
    m.signal(signal.SIGCHLD, signal.SIG_IGN)
    pid = m.fork(lambda: m.exit_now(3))
    noted(m, tried(m, m.waitpid, pid, 0))


@program
def children_that_end_send_sigchld(m: Any) -> None:
    m.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    for code in (0, 3):
        pid = m.fork(lambda code=code: m.exit_now(code))
        info = m.sigtimedwait([signal.SIGCHLD], 5)
        noted(m, (info.si_code, info.si_pid == pid))
        child_ended(m, pid)
    pid = started(m, lambda: (m.say_ready(), m.sleep(5)))
    for signum in (signal.SIGSTOP, signal.SIGCONT, signal.SIGKILL):
        m.kill(pid, signum)
        info = m.sigtimedwait([signal.SIGCHLD], 5)
        noted(m, (info.si_code, info.si_pid == pid))
    child_ended(m, pid)


# Groups and sessions


@program
def sessions_and_groups(m: Any) -> None:
    def child() -> None:
        m.setsid()
        noted(m, (m.getpgrp() == m.getpid(), m.getsid(0) == m.getpid()))
        noted(m, tried(m, m.setsid))
        noted(m, tried(m, m.setpgid, 0, 0))
        noted(m, tried(m, m.setpgid, 0, m.getppid()))

    pid = started(m, child, ready=False)
    child_ended(m, pid)


@program
def a_child_is_put_into_a_group(m: Any) -> None:
    pid = started(m, lambda: (m.say_ready(), m.sleep(5)))
    noted(m, m.getpgid(pid) == m.getpgrp())
    m.setpgid(pid, pid)
    noted(m, m.getpgid(pid) == pid)
    noted(m, tried(m, m.setpgid, pid, 1))
    m.killpg(pid, signal.SIGTERM)
    child_ended(m, pid)
    noted(m, tried(m, m.killpg, pid, signal.SIGTERM))


@program
def a_group_of_zombies_can_be_signalled(m: Any) -> None:
    pid = m.fork(lambda: (m.setsid(), m.exit_now(0)))
    m.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    noted(m, tried(m, m.killpg, pid, signal.SIGKILL))
    child_ended(m, pid)


@program
def a_group_is_waited_for(m: Any) -> None:
    pid = started(m, lambda: (m.setpgid(0, 0), m.say_ready(), m.sleep(0.1), m.exit_now(4)))
    other = started(m, lambda: (m.say_ready(), m.sleep(0.2), m.exit_now(5)))
    noted(m, m.waitpid(-pid, 0)[1] >> 8)
    noted(m, m.waitpid(0, 0) == (other, 5 << 8))


# Pipes


@program
def a_pipe_has_64_kib(m: Any) -> None:
    r, w = m.pipe()
    m.set_blocking(w, False)
    noted(m, m.write(w, b"x" * 100000))
    noted(m, tried(m, m.write, w, b"x"))
    noted(m, m.size_of(r))
    noted(m, len(m.read(r, 4095)))
    noted(m, tried(m, m.write, w, b"x"))
    noted(m, len(m.read(r, 1)))
    noted(m, tried(m, m.write, w, b"x"))


@program
def nobody_reads_a_pipe(m: Any) -> None:
    r, w = m.pipe()
    m.signal(signal.SIGPIPE, signal.SIG_IGN)
    m.close(r)
    noted(m, tried(m, m.write, w, b"x"))


@program
def nobody_reads_a_pipe_and_sigpipe_kills(m: Any) -> None:
    def child() -> None:
        m.signal(signal.SIGPIPE, signal.SIG_DFL)
        r, w = m.pipe()
        m.close(r)
        m.write(w, b"x")

    child_ended(m, started(m, child, ready=False))


@program
def a_blocked_writer_goes_on_when_somebody_reads(m: Any) -> None:
    r, w = m.pipe()

    def child() -> None:
        m.close(r)
        noted(m, m.write(w, b"x" * 200000))

    pid = started(m, child, ready=False)
    m.close(w)
    got = 0
    while data := m.read(r, 1 << 16):
        got += len(data)
    child_ended(m, pid)
    noted(m, got)


@program
def the_end_of_a_pipe_comes_with_the_last_writer(m: Any) -> None:
    r, w = m.pipe()
    again = m.dup(w)
    m.write(w, b"abc")
    m.close(w)
    m.set_blocking(r, False)
    noted(m, (m.read(r, 100), tried(m, m.read, r, 100)))
    m.close(again)
    noted(m, tried(m, m.read, r, 100))


@program
def a_pipe_is_opened_once_more(m: Any) -> None:
    r, w = m.pipe()
    other = m.open(f"/dev/fd/{w}", os.O_WRONLY | os.O_NONBLOCK)
    noted(m, m.write(other, b"x" * 70000))
    noted(m, tried(m, m.write, other, b"x"))
    m.close(w)
    m.set_blocking(r, False)
    noted(m, len(m.read(r, 100000)))
    noted(m, tried(m, m.read, r, 1))
    m.close(other)
    noted(m, m.read(r, 1))


class _Pipes:
    """Any calls on a few pipes, none of which waits."""

    def __init__(self, m: Any, seed: int) -> None:
        self.m, self.random = m, Random(seed)
        self.least = m.notes + 1
        self.names: dict[int, str] = {}  # of descriptors: which end it is
        self.poller, self.epoll = m.poll(), m.epoll()
        self.polled: set[int] = set()

    def noted(self, *what: object) -> None:
        noted(self.m, what)

    def step(self) -> None:
        calls = [self.make, *[self.write] * 3, *[self.read] * 3, self.close, self.dup, self.watch]
        call = self.random.choice([*calls, self.look, self.size])
        fd = self.random.choice(sorted(self.names)) if self.names else -1
        if fd < 0:
            self.make(fd)
        else:
            call(fd)

    def make(self, _: int) -> None:
        for name, fd in zip("rw", self.m.pipe(), strict=True):
            self.m.set_blocking(fd, False)
            self.names[fd] = name
            self.noted(name, fd - self.least)

    def _bytes(self) -> int:
        return self.random.choice((0, 1, 10, 4095, 4096, 4097, 5000, 60000, 65536, 100000))

    def write(self, fd: int) -> None:
        size = self._bytes()
        if self.names[fd] == "w":
            self.noted("write", fd - self.least, size, tried(self.m, self.m.write, fd, b"x" * size))

    def read(self, fd: int) -> None:
        size = self._bytes()
        if self.names[fd] == "r":
            found = tried(self.m, self.m.read, fd, size)
            self.noted("read", fd - self.least, found if isinstance(found, str) else len(found))

    def close(self, fd: int) -> None:
        if fd in self.polled:
            self.epoll.unregister(fd)
            self.poller.unregister(fd)
            self.polled.discard(fd)
        self.m.close(fd)
        del self.names[fd]

    def dup(self, fd: int) -> None:
        other = self.m.dup(fd)
        self.names[other] = self.names[fd]
        self.noted("dup", other - self.least)

    def watch(self, fd: int) -> None:
        events = self.random.choice((select.POLLIN, select.POLLOUT, select.POLLIN | select.POLLOUT))
        if fd not in self.polled:
            self.noted("epoll", tried(self.m, self.epoll.register, fd, events))
            self.poller.register(fd, events)
            self.polled.add(fd)

    def look(self, _: int) -> None:
        for what, ready in (("polled", self.poller.poll(0)), ("ready", self.epoll.poll(0))):
            self.noted(what, [(fd - self.least, seen) for fd, seen in ready])

    def size(self, fd: int) -> None:
        if self.names[fd] == "r":
            self.noted("holds", self.m.size_of(fd))


def _pipes_by_seed(seed: int) -> Program:
    def run(m: Any) -> None:
        m.signal(signal.SIGPIPE, signal.SIG_IGN)
        pipes = _Pipes(m, seed)
        for _ in range(60):
            pipes.step()

    return run


for _seed in range(60):
    PROGRAMS[f"pipes of seed {_seed}"] = _pipes_by_seed(_seed)


# Descriptors


@program
def the_lowest_number_is_given(m: Any) -> None:
    fds = [m.open(os.devnull, os.O_RDONLY) for _ in range(4)]
    m.close(fds[1])
    noted(m, m.open(os.devnull, os.O_RDONLY) == fds[1])
    m.dup2(fds[0], 40)
    noted(m, m.dup(fds[0]) - fds[0])
    noted(m, (m.get_inheritable(40), m.get_inheritable(fds[0])))
    m.set_inheritable(fds[0], True)
    noted(m, m.get_inheritable(fds[0]))
    noted(m, tried(m, m.close, 77))
    noted(m, tried(m, m.dup2, 77, 3))


@program
def there_are_no_more_descriptors(m: Any) -> None:
    m.setrlimit((24, 24))
    count = 0
    while tried(m, m.pipe) != "EMFILE":
        count += 1
    noted(m, "EMFILE")
    noted(m, tried(m, m.open, os.devnull, os.O_RDONLY) != "EMFILE")
    noted(m, tried(m, m.open, os.devnull, os.O_RDONLY))
    noted(m, tried(m, m.dup, 0))
    noted(m, m.open_pidfd(m.getpid()))


# pidfds, poll and epoll


@program
def pidfds_are_ready_in_the_order_of_ends(m: Any) -> None:
    def child(its_turn: int) -> Callable[[], None]:
        return lambda: (m.read(its_turn, 1), m.exit_now(0))  # type: ignore[return-value]

    epoll = m.epoll()
    pipes = [m.pipe() for _ in range(3)]
    pids = [m.fork(child(its_turn)) for its_turn, _ in pipes]
    fds = [m.open_pidfd(pid) for pid in pids]
    for fd in fds:
        epoll.register(fd, select.POLLIN)
    for n in (1, 2, 0):
        m.write(pipes[n][1], b"x")
        m.waitid(os.P_PID, pids[n], os.WEXITED | os.WNOWAIT)
    noted(m, [fds.index(fd) for fd, _ in epoll.poll(1)])
    noted(m, [fds.index(fd) for fd, _ in epoll.poll(1)])
    for pid in pids:
        m.waitpid(pid, 0)
    noted(m, [fds.index(fd) for fd, _ in epoll.poll(1)])


@program
def a_pidfd_is_of_one_process(m: Any) -> None:
    pid = m.fork(lambda: m.sleep(5))
    fd = m.open_pidfd(pid)
    poller = m.poll()
    poller.register(fd, select.POLLIN)
    noted(m, poller.poll(0))
    m.signal_pidfd(fd, signal.SIGTERM)
    noted(m, [seen for _, seen in poller.poll(5000)])
    child_ended(m, pid)
    noted(m, m.signal_pidfd(fd, signal.SIGTERM))
    noted(m, m.open_pidfd(pid))
    noted(m, tried(m, m.read, fd, 1))


@program
def a_poll_ends_when_something_comes(m: Any) -> None:
    r, w = m.pipe()
    pid = m.fork(lambda: (m.sleep(0.1), m.write(w, b"x"), m.exit_now(0)))
    epoll = m.epoll()
    epoll.register(r, select.POLLIN)
    noted(m, [seen for _, seen in epoll.poll(5)])
    noted(m, [seen for _, seen in epoll.poll(0)])
    m.read(r, 1)
    noted(m, epoll.poll(0))
    child_ended(m, pid)
    m.close(w)
    noted(m, [seen for _, seen in epoll.poll(5)])
    noted(m, tried(m, epoll.register, r, select.POLLIN))
    epoll.unregister(r)
    noted(m, tried(m, epoll.unregister, r))
    noted(m, tried(m, epoll.register, 99, select.POLLIN))


@program
def what_is_closed_leaves_an_epoll(m: Any) -> None:
    r, w = m.pipe()
    epoll = m.epoll()
    epoll.register(r, select.POLLIN)
    m.write(w, b"x")
    again = m.dup(r)
    m.close(r)
    noted(m, len(epoll.poll(0)))
    m.close(again)
    noted(m, len(epoll.poll(0)))


@program
def a_regular_file_cannot_be_waited_for(m: Any) -> None:
    fd = m.open(f"{m.directory}/file", os.O_WRONLY | os.O_CREAT)
    noted(m, tried(m, m.epoll().register, fd, select.POLLOUT))
    poller = m.poll()
    poller.register(fd, select.POLLOUT | select.POLLIN)
    noted(m, [seen for _, seen in poller.poll(0)])


@program
def a_poll_of_nothing_waits(m: Any) -> None:
    since = m.monotonic()
    noted(m, m.poll().poll(50))
    noted(m, m.epoll().poll(0.05))
    noted(m, m.monotonic() - since >= 0.1)
    poller = m.poll()
    poller.register(88, select.POLLIN)
    noted(m, poller.poll(1000))


# Files


@program
def a_file_is_given_another_mode_and_owner(m: Any) -> None:
    fd = m.open(f"{m.directory}/file", os.O_WRONLY | os.O_CREAT, 0o600)
    m.fchmod(fd, 0o640)
    m.fchown(fd, m.geteuid(), 0)
    found = m.fstat(fd)
    noted(m, (oct(found.st_mode), found.st_uid == m.geteuid()))
    m.close(fd)


@program
def files_are_made_renamed_and_removed(m: Any) -> None:
    at = m.directory
    noted(m, tried(m, m.mkdir, f"{at}/d", 0o700))
    noted(m, tried(m, m.mkdir, f"{at}/d", 0o700))
    noted(m, tried(m, m.rmdir, f"{at}/none"))
    fd = m.open(f"{at}/d/f", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    noted(m, m.write(fd, b"hello"))
    noted(m, tried(m, m.open, f"{at}/d/f", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    noted(m, tried(m, m.rmdir, f"{at}/d"))
    m.rename(f"{at}/d/f", f"{at}/g")
    noted(m, tried(m, m.stat, f"{at}/d/f"))
    noted(m, m.stat(f"{at}/g").st_size)
    more = m.open(f"{at}/g", os.O_WRONLY | os.O_APPEND)
    m.write(more, b" world")
    m.write(fd, b"HELLO")
    again = m.open(f"{at}/g", os.O_RDONLY)
    noted(m, (m.read(again, 100), m.read(again, 100)))
    noted(m, m.pread(again, 3, 2))
    m.unlink(f"{at}/g")
    noted(m, tried(m, m.lstat, f"{at}/g"))
    noted(m, m.pread(again, 3, 0))
    noted(m, tried(m, m.unlink, f"{at}/d"))
    m.rmdir(f"{at}/d")
    noted(m, m.listdir(at))


@program
def what_a_path_leads_to(m: Any) -> None:
    at = m.directory
    m.makedirs(f"{at}/a/b/c")
    noted(m, tried(m, m.makedirs, f"{at}/a/b/c"))
    noted(m, tried(m, lambda: m.makedirs(f"{at}/a/b/c", exist_ok=True)))
    m.close(m.open(f"{at}/a/f", os.O_WRONLY | os.O_CREAT, 0o600))
    noted(m, tried(m, m.makedirs, f"{at}/a/f/g"))
    noted(m, tried(m, lambda: m.makedirs(f"{at}/a/f", exist_ok=True)))
    for path in (f"{at}/a/b", f"{at}/a/f", f"{at}/none", f"{at}/a/f/none"):
        noted(m, (m.exists(path), m.lexists(path), m.isdir(path), m.isfile(path)))


@program
def what_no_terminal_tells(m: Any) -> None:
    r, _ = m.pipe()
    noted(m, (m.isatty(r), tried(m, m.get_terminal_size, r)))
    noted(m, tried(m, m.get_terminal_size, 77))


# /proc


@program
def proc_tells_of_children(m: Any) -> None:
    def content(path: str) -> Any:
        fd = tried(m, m.open, path, os.O_RDONLY)
        return m.read(fd, 65536).decode() if isinstance(fd, int) else fd

    def child() -> None:
        m.signal(signal.SIGUSR1, lambda *_: None)
        m.signal(signal.SIGHUP, signal.SIG_IGN)
        m.pthread_sigmask(signal.SIG_SETMASK, [signal.SIGTERM])
        m.say_ready()
        m.sleep(5)

    def status(pid: int, *keys: str) -> list[str]:
        lines = dict(line.split(":", 1) for line in content(f"/proc/{pid}/status").splitlines())
        return [lines[key].split()[0] for key in keys]

    me = m.getpid()
    noted(m, m.readlink("/proc/self") == str(me))
    pid = started(m, child)
    noted(m, content(f"/proc/{me}/task/{me}/children") == f"{pid} ")
    caught, ignored, blocked = status(pid, "SigCgt", "SigIgn", "SigBlk")
    noted(m, (int(caught, 16) >> 9 & 1, int(ignored, 16) & 1, int(blocked, 16)))
    m.kill(pid, signal.SIGSTOP)
    m.waitid(os.P_PID, pid, os.WSTOPPED)
    noted(m, status(pid, "State", "TracerPid"))
    fields = content(f"/proc/{pid}/stat").rpartition(") ")[2].split()
    noted(m, (fields[0], int(fields[1]) == me, fields[17]))
    m.kill(pid, signal.SIGKILL)
    m.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    noted(m, status(pid, "State"))
    fields = content(f"/proc/{pid}/stat").rpartition(") ")[2].split()
    noted(m, (fields[0], fields[-1]))
    noted(m, content(f"/proc/{pid}/cmdline"))
    noted(m, content(f"/proc/{pid}/task/{pid}/children"))
    child_ended(m, pid)
    noted(m, content(f"/proc/{pid}/stat"))


# Sockets, on loopback


def listening(m: Any) -> Any:
    listener = m.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.setblocking(False)
    listener.bind(("127.0.0.1", 0))
    listener.listen(10)
    return listener


def ready(m: Any, sock: Any, events: int, wait_ms: int = 2000) -> int:
    """What poll tells of it: 0 where nothing comes in that time."""
    poller = m.poll()
    poller.register(sock.fileno(), events)
    return next((seen for _, seen in poller.poll(wait_ms)), 0)


def connected(m: Any) -> tuple[Any, Any]:
    """Both ends of a connection; the listener is closed."""
    listener = listening(m)
    mine = m.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    mine.setblocking(False)
    mine.connect_ex(listener.getsockname())
    ready(m, listener, select.POLLIN)
    theirs, _ = m.accept(listener)
    theirs.setblocking(False)
    ready(m, mine, select.POLLOUT)
    listener.close()
    return mine, theirs


@program
def a_connection_comes(m: Any) -> None:
    listener = listening(m)
    noted(m, tried(m, m.accept, listener))
    noted(m, ready(m, listener, select.POLLIN, 20))
    mine = m.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    mine.setblocking(False)
    noted(m, tried(m, mine.getpeername))
    noted(m, mine.connect_ex(listener.getsockname()) in (0, errno.EINPROGRESS))
    noted(m, ready(m, mine, select.POLLOUT))
    noted(m, mine.getsockopt(_socket.SOL_SOCKET, _socket.SO_ERROR))
    noted(m, mine.getpeername() == listener.getsockname())
    noted(m, ready(m, listener, select.POLLIN))
    theirs, address = m.accept(listener)
    noted(m, address == mine.getsockname())
    theirs.setblocking(False)
    noted(m, tried(m, theirs.recv, 10))
    noted(m, mine.send(b"hello"))
    noted(m, ready(m, theirs, select.POLLIN))
    noted(m, theirs.recv(3))
    noted(m, theirs.recv(10))


@program
def nobody_listens(m: Any) -> None:
    listener = listening(m)
    address = listener.getsockname()
    listener.close()
    mine = m.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    mine.setblocking(False)
    code = mine.connect_ex(address)
    if code == errno.EINPROGRESS:
        ready(m, mine, select.POLLOUT)
        code = mine.getsockopt(_socket.SOL_SOCKET, _socket.SO_ERROR)
    noted(m, code == errno.ECONNREFUSED)
    noted(m, tried(m, mine.getpeername))


@program
def nobody_listens_at_a_name(m: Any) -> None:
    before = sorted(m.listdir("/dev/fd"))
    noted(m, tried(m, m.connect_local, "\0spawnlaunch-nobody-has-this-name"))
    noted(m, sorted(m.listdir("/dev/fd")) == before)


@program
def one_end_is_closed(m: Any) -> None:
    mine, theirs = connected(m)
    mine.send(b"last")
    mine.close()
    noted(m, ready(m, theirs, select.POLLIN))
    noted(m, theirs.recv(100))
    m.sleep(0.05)
    noted(m, theirs.recv(100))
    noted(m, ready(m, theirs, select.POLLIN | select.POLLOUT))


@program
def one_end_is_shut_down(m: Any) -> None:
    mine, theirs = connected(m)
    mine.send(b"last")
    mine.shutdown(_socket.SHUT_WR)
    m.sleep(0.05)
    noted(m, (theirs.recv(100), theirs.recv(100)))
    noted(m, theirs.send(b"answer"))
    m.sleep(0.05)
    noted(m, mine.recv(100))
    noted(m, tried(m, mine.send, b"x"))
    theirs.close()
    m.sleep(0.05)
    noted(m, ready(m, mine, select.POLLIN | select.POLLOUT))
    noted(m, mine.recv(100))


@program
def closing_with_something_unread_is_a_reset(m: Any) -> None:
    mine, theirs = connected(m)
    mine.send(b"never read")
    m.sleep(0.05)
    theirs.close()
    m.sleep(0.05)
    noted(m, ready(m, mine, select.POLLIN | select.POLLOUT))
    noted(m, tried(m, mine.recv, 100))
    noted(m, tried(m, mine.send, b"x"))
    noted(m, tried(m, mine.recv, 100))


@program
def sending_to_what_is_closed(m: Any) -> None:
    mine, theirs = connected(m)
    theirs.close()
    m.sleep(0.05)
    noted(m, tried(m, mine.send, b"once"))
    m.sleep(0.05)
    noted(m, tried(m, mine.send, b"twice"))


@program
def a_killed_process_closes_its_connections(m: Any) -> None:
    listener = listening(m)

    def child() -> None:
        mine = m.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        mine.setblocking(False)
        mine.connect_ex(listener.getsockname())
        ready(m, mine, select.POLLOUT)
        mine.send(b"hello")
        m.say_ready()
        m.sleep(5)

    pid = started(m, child)
    theirs, _ = m.accept(listener)
    theirs.setblocking(False)
    m.kill(pid, signal.SIGKILL)
    child_ended(m, pid)
    m.sleep(0.05)
    noted(m, (theirs.recv(100), theirs.recv(100)))


@program
def two_listen_at_one_port(m: Any) -> None:
    listener = listening(m)
    other = m.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    noted(m, tried(m, other.bind, listener.getsockname()))
    listener.close()
    noted(m, tried(m, other.bind, listener.getsockname()) if listener.fileno() >= 0 else "closed")


@program
def names_of_datagram_sockets(m: Any) -> None:
    one = m.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
    name = f"\0conformance-{m.getpid()}"
    one.bind(name)
    other = m.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
    noted(m, tried(m, other.bind, name))
    one.close()
    noted(m, tried(m, other.bind, name))


# Running them


def _adapter(door: Any, notes: int, directory: str) -> Any:
    class M:
        def __getattr__(self, name: str) -> Any:
            return getattr(door, name)

        def signal(self, signum: int, handler: Any) -> Any:
            return door.signal(signum, handler if callable(handler) else int(handler))

    made = M()
    made.notes, made.directory = notes, directory  # type: ignore[attr-defined]
    return made


def on_linux(names: Iterable[str], directory: str) -> dict[str, str]:
    """What each of these programs saw on the machine itself, in a process of its own.

    Much of it is waiting: so several run at a time.
    """
    waiting, running, seen = list(names), {}, {}
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            name = waiting.pop()
            place = tempfile.mkdtemp(dir=directory)
            running[_begun(PROGRAMS[name], place)] = name, place
        pid, status = os.wait()
        name, place = running.pop(pid)
        with open(os.path.join(place, "notes")) as file:
            seen[name] = file.read() + f"status {os.waitstatus_to_exitcode(status)}\n"
    return seen


def _begun(run: Program, place: str) -> int:
    work = os.path.join(place, "work")
    os.makedirs(work)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            os.dup2(os.open(os.path.join(place, "notes"), flags), 3)
            os.closerange(4, 200)
            os.setpgid(0, 0)
            signal.alarm(60)
            run(_adapter(machine, 3, work))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return pid


def simulated(run: Program, seed: int = 0) -> str:
    """What it saw in the simulation."""
    kernel = Kernel(seed, restless=1.0 if seed % 2 else 0.0)
    node = Node(kernel, "node0")
    inode = Inode(0o100000, 0o600)
    door = Door(kernel)

    def main(process: Any) -> int:
        process.fds[3] = Regular(inode, appends=True).held(), False
        for fd in range(3):
            process.fds[fd] = Null().held(), True
        process.group = process.pid
        process.handlers[signal.SIGINT] = signal.default_int_handler
        process.handlers[int(signal.SIGPIPE)] = signal.SIG_IGN
        process.handlers[int(signal.SIGXFSZ)] = signal.SIG_IGN
        run(_adapter(door, 3, "/work"))
        return 0

    shell = node.start(lambda process: door.sleep(1e6))  # in whose session it is
    process = node.start(main, shell)
    shell.group = shell.session = process.session = shell.pid
    kernel.run(60)
    kernel.close()
    text = inode.content.decode() + f"status {process.code}\n"
    return text + "".join(kernel.tracebacks)


def differences(names: Iterable[str], tries: int = 3) -> dict[str, str]:
    """By program, what it saw on Linux and in the simulation, where that is not the same.

    On a busy machine a program's waits may be too short: it is tried again.
    """
    made = {name: simulated(PROGRAMS[name]) for name in names}
    differing = dict.fromkeys(made, "")
    for _ in range(tries):
        with tempfile.TemporaryDirectory() as directory:
            real = on_linux(differing, directory)
        differing = {name: text for name, text in real.items() if text != made[name]}
        if not differing:
            break
    return {
        name: "\n".join(difflib.ndiff(text.splitlines(), made[name].splitlines()))
        for name, text in differing.items()
    }


def main() -> int:
    chosen = [name for name in PROGRAMS if not sys.argv[1:] or sys.argv[1] in name]
    found = differences(chosen)
    for name, words in found.items():
        print(f"== {name}: - Linux, + simulated\n{words}")
    print(f"{len(chosen)} programs, {len(found)} differ")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
