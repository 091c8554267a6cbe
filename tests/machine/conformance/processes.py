"""How processes end, who gets their orphans, groups and sessions, and what /proc shows of them."""

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


@programs((code,) for code in (0, 1, 7, 255, 256, -1, -9, -15, -6, -11))
def a_child_ends(m: Any, code: int) -> None:
    def child() -> None:
        if code < 0:
            m.kill(m.getpid(), -code)
        m.exit_now(code)

    pid = m.fork(child)
    zombie = m.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    noted(m, (zombie.si_status, zombie.si_code == 1), tried(m, m.kill, pid, 0))
    child_ended(m, pid)
    noted(m, tried(m, m.kill, pid, 0), tried(m, m.waitpid, pid, 0))
    noted(m, tried(m, m.waitid, os.P_ALL, 0, os.WEXITED | os.WNOHANG))


@programs(product((True, False), repeat=2))
def an_orphan_comes_to_the_nearest_subreaper(m: Any, outer: bool, inner: bool) -> None:
    """Which its child is not by that."""
    if outer:
        m.prctl(36, 1)

    def grandchild() -> None:  # which notes nothing: where it is nobody's, nobody waits for it
        m.sleep(0.2)
        m.exit_now(3)

    def child() -> None:
        if inner:
            m.prctl(36, 1)
        m.waitpid(m.fork(lambda: (m.fork(grandchild), m.exit_now(0))), 0)
        found = tried(m, m.waitpid, -1, 0)
        noted(m, found if isinstance(found, str) else os.waitstatus_to_exitcode(found[1]))
        m.exit_now(0)

    child_ended(m, m.fork(child))
    found = tried(m, m.waitpid, -1, 0)
    noted(m, found if isinstance(found, str) else os.waitstatus_to_exitcode(found[1]))


DEATHS = (signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1, signal.SIGCONT)


@programs([*product(DEATHS, ("itself",)), (signal.SIGKILL, "its parent")])
def a_parent_ends_of_one_with_a_death_signal(m: Any, signum: int, who_asked: str) -> None:
    """A child does not inherit it."""
    m.prctl(36, 1)
    r, w = m.pipe()
    until_its_end, of_child = m.pipe()

    def grandchild() -> None:
        m.signal(signal.SIGUSR1, lambda *_: noted(m, "told"))
        if who_asked == "itself":
            m.prctl(1, signum)
        m.close(of_child)
        m.write(w, b"x")
        m.read(until_its_end, 1)  # on a busy machine it takes long until the child has ended
        m.sleep(1.0)
        noted(m, "still here")
        m.exit_now(0)

    def child() -> None:
        if who_asked == "its parent":
            m.prctl(1, signum)
        m.fork(grandchild)
        m.read(r, 1)
        m.exit_now(0)

    pid = m.fork(child)
    m.close(of_child)
    status = m.waitpid(pid, 0)[1]  # noted last: the grandchild is told at the same time
    child_ended(m, -1)
    noted(m, ("child", os.waitstatus_to_exitcode(status)))


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
    fd = m.signalfd([signal.SIGCHLD])
    for code in (0, 3):
        pid = m.fork(lambda code=code: m.exit_now(code))
        noted(m, next_signal(m, fd, 5))
        child_ended(m, pid)
    pid = started(m, lambda: (m.say_ready(), m.sleep(5)))
    for signum in (signal.SIGSTOP, signal.SIGCONT, signal.SIGKILL):
        m.kill(pid, signum)
        noted(m, next_signal(m, fd, 5))
    child_ended(m, pid)


@program
def sessions_and_groups(m: Any) -> None:
    def child() -> None:
        m.setsid()
        noted(m, (m.getpgrp() == m.getpid(), m.getsid(0) == m.getpid()), tried(m, m.setsid))
        noted(m, tried(m, m.setpgid, 0, 0), tried(m, m.setpgid, 0, m.getppid()))

    pid = started(m, child, ready=False)
    child_ended(m, pid)


@program
def a_child_is_put_into_a_group(m: Any) -> None:
    pid, other = (started(m, lambda: (m.say_ready(), m.sleep(5))) for _ in range(2))
    noted(m, m.getpgid(pid) == m.getpgrp())
    m.setpgid(pid, pid)
    m.setpgid(other, pid)
    noted(m, m.getpgid(other) == pid, tried(m, m.setpgid, pid, 1))
    m.killpg(pid, signal.SIGTERM)
    child_ended(m, other)
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
    noted(m, m.waitpid(-pid, 0)[1] >> 8, m.waitpid(0, 0) == (other, 5 << 8))


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
    noted(m, (fields[0], fields[-1]), content(f"/proc/{pid}/cmdline"))
    noted(m, content(f"/proc/{pid}/task/{pid}/children"))
    child_ended(m, pid)
    noted(m, content(f"/proc/{pid}/stat"))
