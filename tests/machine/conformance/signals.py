"""Signals: what becomes of them, and what they do to whom; stopping and going on."""

import os
import signal
from itertools import product
from typing import Any

from tests.machine.conformance.programs import (
    child_ended,
    next_signal,
    noted,
    program,
    programs,
    started,
    tried,
)

SIGNALS = (
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGABRT, signal.SIGUSR1, signal.SIGSEGV,
    signal.SIGPIPE, signal.SIGTERM, signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH, signal.SIGXFSZ,
)  # fmt: skip


@programs(product(SIGNALS, ("default", "ignored", "caught", "blocked")))
def a_child_gets(m: Any, signum: int, how: str) -> None:
    def child() -> None:
        if how == "ignored":
            m.signal(signum, signal.SIG_IGN)
        elif how == "caught":
            m.signal(signum, lambda n, _: noted(m, ("caught", n)))
        else:
            m.signal(signum, signal.SIG_DFL)
        if how == "blocked":
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


@programs(product(SIGNALS, ("default", "ignored", "ignored for a while")))
def what_is_blocked_is_read(m: Any, signum: int, how: str) -> None:
    """What was ignored before is not kept."""
    m.pthread_sigmask(signal.SIG_BLOCK, [signum])
    fd = m.signalfd([signum])
    if how != "default":
        m.signal(signum, signal.SIG_IGN)
    m.kill(m.getpid(), signum)
    m.kill(m.getpid(), signum)
    if how == "ignored for a while":
        m.signal(signum, signal.SIG_DFL)
    noted(m, next_signal(m, fd, 0.01), next_signal(m, fd, 0.01))


@program
def several_signals_are_read_by_number(m: Any) -> None:
    read = [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD]
    m.pthread_sigmask(signal.SIG_BLOCK, read)
    fd = m.signalfd(read)
    for signum in read:
        m.kill(m.getpid(), signum)
    noted(m, *(next_signal(m, fd, 0.01) for _ in range(5)))


@program
def a_timer_sends_sigalrm_once(m: Any) -> None:
    m.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    fd = m.signalfd([signal.SIGALRM])
    m.setitimer(signal.ITIMER_REAL, 0.3)
    m.setitimer(signal.ITIMER_REAL, 0.05)
    noted(m, next_signal(m, fd, 5.0), next_signal(m, fd, 0.4))
    m.setitimer(signal.ITIMER_REAL, 0.05)
    m.setitimer(signal.ITIMER_REAL, 0)
    noted(m, next_signal(m, fd, 0.2))


@program
def a_wakeup_descriptor_gets_numbers(m: Any) -> None:
    r, w = m.pipe()
    m.set_blocking(w, False)
    m.set_blocking(r, False)
    m.set_wakeup_fd(w, warn_on_full_buffer=False)
    for signum in (signal.SIGTERM, signal.SIGUSR1):
        m.signal(signum, lambda *_: None)
        m.kill(m.getpid(), signum)
    noted(m, list(m.read(r, 100)), tried(m, m.read, r, 100))
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


STOPS = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


@programs(product(STOPS, (signal.SIGCONT, signal.SIGKILL, signal.SIGTERM)))
def a_child_stops(m: Any, signum: int, ending: int) -> None:
    def child() -> None:
        m.say_ready()
        m.sleep(0.1)
        noted(m, "went on")
        m.sleep(5.0)

    pid = started(m, child)
    m.kill(pid, signum)
    for options in (os.WNOWAIT, os.WNOWAIT, 0, os.WNOHANG):
        told = m.waitid(os.P_PID, pid, os.WSTOPPED | options)
        noted(m, told and (told.si_code, told.si_status))
    m.kill(pid, ending)
    if ending != signal.SIGKILL:
        m.sleep(0.3)
        noted(m, m.waitpid(pid, os.WNOHANG) == (0, 0))
    if ending == signal.SIGCONT:
        told = m.waitid(os.P_PID, pid, os.WCONTINUED)
        noted(m, told and (told.si_code, told.si_status))
        m.kill(pid, signal.SIGKILL)
    elif ending == signal.SIGTERM:
        m.kill(pid, signal.SIGCONT)
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


@programs(product((None, signal.SIGSTOP, signal.SIGTSTP), ("exits", "is killed")))
def a_group_is_left(m: Any, signum: int | None, how: str) -> None:
    """The leader of a session ends, and leaves a group of it with nobody above in the session."""
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
        m.read(r, 1)
        if signum:
            m.kill(pid, signum)
            m.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
        if how == "is killed":
            m.kill(m.getpid(), signal.SIGKILL)
        m.exit_now(0)

    child_ended(m, m.fork(child))
    child_ended(m, -1)


CAUGHT = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


@programs([(CAUGHT, (*CAUGHT, signal.SIGTERM)), (CAUGHT[1:], CAUGHT[:2]), ((), CAUGHT[2:])])
def handlers_run_by_number_as_it_goes_on(
    m: Any, caught: tuple[int, ...], sent: tuple[int, ...]
) -> None:
    """But who is to die of one of them runs no handler; and until it goes on it dies of SIGKILL."""

    def child() -> None:
        for signum in CAUGHT:
            m.signal(signum, signal.SIG_DFL)
        for signum in caught:
            m.signal(signum, lambda n, _: noted(m, ("caught", int(n))))
        m.say_ready()
        m.sleep(1.5)
        noted(m, "at the end")

    pid = started(m, child)
    m.kill(pid, signal.SIGSTOP)
    m.waitid(os.P_PID, pid, os.WSTOPPED)
    for signum in sent:
        m.kill(pid, signum)
    m.sleep(0.1)
    noted(m, m.waitpid(pid, os.WNOHANG) == (0, 0))
    m.kill(pid, signal.SIGCONT if caught else signal.SIGKILL)
    child_ended(m, pid)


@program
def several_children_that_end_may_send_one_sigchld(m: Any) -> None:
    m.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    fd = m.signalfd([signal.SIGCHLD])
    pids = [m.fork(lambda n=n: m.exit_now(n)) for n in (1, 2, 3)]
    for pid in pids:
        m.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    noted(m, next_signal(m, fd, 5), next_signal(m, fd, 0.05))
    for pid in pids:
        child_ended(m, pid)
