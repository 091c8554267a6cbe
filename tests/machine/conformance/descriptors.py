"""Numbers of descriptors, files, and what is waited for: pidfds, poll and epoll."""

import os
import select
import signal
from collections.abc import Callable
from typing import Any

from tests.machine.conformance.programs import child_ended, noted, program, tried


@program
def the_lowest_number_is_given(m: Any) -> None:
    fds = [m.open(os.devnull, os.O_RDONLY) for _ in range(4)]
    m.close(fds[1])
    noted(m, m.open(os.devnull, os.O_RDONLY) == fds[1])
    m.dup2(fds[0], 40)
    noted(m, m.dup(fds[0]) - fds[0], (m.get_inheritable(40), m.get_inheritable(fds[0])))
    m.set_inheritable(fds[0], True)
    noted(m, m.get_inheritable(fds[0]), tried(m, m.close, 77), tried(m, m.dup2, 77, 3))


@program
def there_are_no_more_descriptors(m: Any) -> None:
    m.setrlimit((24, 24))
    count = 0
    while tried(m, m.pipe) != "EMFILE":
        count += 1
    noted(m, "EMFILE", tried(m, m.open, os.devnull, os.O_RDONLY) != "EMFILE")
    noted(m, tried(m, m.open, os.devnull, os.O_RDONLY), tried(m, m.dup, 0))
    noted(m, m.open_pidfd(m.getpid()))


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
    noted(m, [fds.index(fd) for fd, _ in epoll.poll(1)], [fds.index(fd) for fd, _ in epoll.poll(1)])
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
    noted(m, m.signal_pidfd(fd, signal.SIGTERM), m.open_pidfd(pid), tried(m, m.read, fd, 1))


@program
def a_poll_ends_when_something_comes(m: Any) -> None:
    r, w = m.pipe()
    pid = m.fork(lambda: (m.sleep(0.1), m.write(w, b"x"), m.exit_now(0)))
    epoll = m.epoll()
    epoll.register(r, select.POLLIN)
    noted(m, [seen for _, seen in epoll.poll(5)], [seen for _, seen in epoll.poll(0)])
    m.read(r, 1)
    noted(m, epoll.poll(0))
    child_ended(m, pid)
    m.close(w)
    noted(m, [seen for _, seen in epoll.poll(5)], tried(m, epoll.register, r, select.POLLIN))
    epoll.unregister(r)
    noted(m, tried(m, epoll.unregister, r), tried(m, epoll.register, 99, select.POLLIN))


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
    noted(m, m.poll().poll(50), m.epoll().poll(0.05), m.monotonic() - since >= 0.1)
    poller = m.poll()
    poller.register(88, select.POLLIN)
    noted(m, poller.poll(1000))


@program
def a_file_is_given_another_mode(m: Any) -> None:
    fd = m.open(f"{m.directory}/file", os.O_WRONLY | os.O_CREAT, 0o600)
    m.fchmod(fd, 0o640)
    found = m.fstat(fd)
    noted(m, (oct(found.st_mode), found.st_uid == m.geteuid()))
    m.close(fd)


@program
def files_are_made_renamed_and_removed(m: Any) -> None:
    at = m.directory
    noted(m, tried(m, m.mkdir, f"{at}/d", 0o700), tried(m, m.mkdir, f"{at}/d", 0o700))
    noted(m, tried(m, m.rmdir, f"{at}/none"))
    fd = m.open(f"{at}/d/f", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    noted(m, m.write(fd, b"hello"))
    noted(m, tried(m, m.open, f"{at}/d/f", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    noted(m, tried(m, m.rmdir, f"{at}/d"))
    m.replace(f"{at}/d/f", f"{at}/g")
    noted(m, tried(m, m.stat, f"{at}/d/f"), m.stat(f"{at}/g").st_size)
    more = m.open(f"{at}/g", os.O_WRONLY | os.O_APPEND)
    m.write(more, b" world")
    m.write(fd, b"HELLO")
    again = m.open(f"{at}/g", os.O_RDONLY)
    noted(m, (m.read(again, 100), m.read(again, 100)), m.pread(again, 3, 2))
    m.unlink(f"{at}/g")
    noted(m, tried(m, m.lstat, f"{at}/g"), m.pread(again, 3, 0), tried(m, m.unlink, f"{at}/d"))
    m.rmdir(f"{at}/d")
    noted(m, m.listdir(at))


@program
def what_a_path_leads_to(m: Any) -> None:
    at = m.directory
    m.mkdir(f"{at}/a", 0o700)
    m.mkdir(f"{at}/a/b", 0o700)
    noted(m, tried(m, m.mkdir, f"{at}/a/b"), tried(m, m.mkdir, f"{at}/none/b"))
    m.close(m.open(f"{at}/a/f", os.O_WRONLY | os.O_CREAT, 0o600))
    noted(m, tried(m, m.mkdir, f"{at}/a/f/g"), tried(m, m.mkdir, f"{at}/a/f"))
    for path in (f"{at}/a/b", f"{at}/a/f", f"{at}/none", f"{at}/a/f/none"):
        noted(m, (m.exists(path), m.islink(path), m.isdir(path), m.isfile(path)))
    m.remove_tree(f"{at}/a")
    noted(m, m.listdir(at))


@program
def what_no_terminal_tells(m: Any) -> None:
    r, _ = m.pipe()
    noted(m, (m.isatty(r), tried(m, m.get_terminal_size, r)), tried(m, m.get_terminal_size, 77))
