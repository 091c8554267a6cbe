"""Wait for several descriptors and alarms at once, and make their calls.

epoll returns descriptors in the order in which they became ready: with a pidfd for every worker
that is the order of their exits, which `waitid` does not give. Without epoll, poll does the same
without the order.

Time limits for other processes (a grace, silence, a reader) are measured by `machine.running_s`,
which is paused while this process cannot run: stopped by a signal or a debugger, frozen with its
cgroup, paused with its container or virtual machine. Then the other process may not have run
either. The limit of a user (--timeout) is measured by the monotonic clock. The rules of several
nodes have a clock of their own, which is paused only in long gaps: a node must learn soon that the
hub has begun an epoch without it.

A wait that takes over LATE_S longer than asked is a gap, and nothing of it counts, as the part in
which this process ran is unknown. So while such a limit runs, no wait is longer than LOOK_S. On a
busy machine a process waits for its turn too; that is a gap only beyond LATE_S. An alarm with a
much longer time may look at the clock more rarely (`Loop.alarm`).
"""

from __future__ import annotations

import errno
import select
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress

from spawnlaunch.base import machine, reading, say
from spawnlaunch.base.signals import signal

# The kernel takes milliseconds in an int, which is 24 days (epoll_wait(2), poll(2)). A longer wait
# is made of several.
LONGEST_S = 86400.0
LOOK_S, LATE_S = 0.5, 1.0
WATCHDOG_S = 8.0  # in which a process comes back to waiting, even on a busy machine
WATCHDOG = "this process has to come back to waiting"  # a key of machine.remembered

# Size of signalfd_siginfo in signalfd(2); it begins with number, errno and code, of 4 bytes each.
SIGINFO = 128
SI_KERNEL = 0x80  # the code of a signal that the kernel sent, here: the terminal (sigaction(2))
BY_TERMINAL = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGWINCH)


def _restart_watchdog() -> None:
    """Restart the timer of `arm_watchdog`, if this process has one."""
    if WATCHDOG in machine.remembered:
        with suppress(OSError):  # the system refuses timers
            machine.setitimer(signal.ITIMER_REAL, WATCHDOG_S)


def arm_watchdog() -> None:
    """Have the kernel end this process if it does not wait in this module for WATCHDOG_S."""
    machine.remembered[WATCHDOG] = True
    machine.signal(signal.SIGALRM, signal.SIG_DFL)
    machine.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    _restart_watchdog()


def patient_poll(poller: select.poll, for_s: float) -> list[tuple[int, int]]:
    """Poll until a descriptor is ready, at most for `for_s` seconds, without gaps."""
    until = machine.running_s() + for_s
    while True:
        _restart_watchdog()
        wait_s = max(0.0, min(until - machine.running_s(), LOOK_S))
        began = machine.monotonic()
        ready = poller.poll(wait_s * 1000)
        passed_s = machine.monotonic() - began
        if passed_s > wait_s + LATE_S:
            machine.exclude(passed_s)
        if ready or machine.running_s() >= until:
            return ready


def patient_sleep(for_s: float) -> None:
    """Wait for `for_s` seconds, without gaps."""
    patient_poll(machine.poll(), for_s)


class Loop:
    """An event loop for descriptors and alarms; the owners of the descriptors close them."""

    def __init__(self, follow: Callable[[], bool] = lambda: False, has_order: bool = True) -> None:
        """Set up a loop, by epoll where the order counts and the system has it, else by poll.

        `follow` is called at the end of each turn; it returns True while the clock of alarms must
        stand, as the processes that the loop waits for are kept from running. `has_order`: make
        calls in the order in which descriptors became ready, where the system gives it.
        """
        self._follow = follow
        self._calls: dict[int, Callable[[], None]] = {}
        # Call -> its time, the clock of that time, and the longest wait until it is checked.
        self._alarms: dict[Callable[[], object], tuple[float, Callable[[], float], float]] = {}
        self._read_at_s = machine.running_s()  # the clock when it was last read
        self._stands = False
        self._poller: select.epoll | select.poll = machine.poll()
        self._per_second = 1000
        epoll = None
        if not has_order:
            return
        try:
            (opened := machine.epoll()).poll(0)
            epoll = opened
            epoll.register(epoll)
        except AttributeError:
            pass
        except OSError as error:
            if epoll and error.errno == errno.EINVAL:
                # EINVAL: epoll works, and only refuses to watch itself (epoll_ctl(2)).
                self._poller, self._per_second = epoll, 1
            else:
                say.say([f"warning: the system refuses epoll ({error.strerror}): of workers that "
                         "fail at the same time any may be named as the first"])  # fmt: skip

    def watch(self, fd: int, call: Callable[[], None], events: int = select.POLLIN) -> None:
        """Call `call` whenever `fd` can be read (or written to), or its other end is closed."""
        self._poller.register(fd, events)
        self._calls[fd] = call

    def forget(self, fd: int) -> None:
        """Watch `fd` no longer; to be called before it is closed."""
        self._poller.unregister(fd)
        del self._calls[fd]

    def alarm(
        self, call: Callable[[], object], after_s: float | None, always: bool = False,
        look_s: float = LOOK_S,
    ) -> None:  # fmt: skip
        """Call `call` once, after so many seconds in which this process runs; `always`: in all.

        Each `call` has one alarm, and `after_s` None removes it. A gap of less than `look_s` may
        count as time in which this process runs: with a larger `look_s` a long alarm is less exact
        and wakes this process more rarely.
        """
        self._alarms.pop(call, None)
        if after_s is not None:
            self._count()  # else a gap just before this call would prolong the alarm
            now = machine.monotonic if always else machine.running_s
            self._alarms[call] = now() + after_s, now, LONGEST_S if always else max(LOOK_S, look_s)

    def turn(self, timeout_s: float | None = None) -> None:
        """Wait until a descriptor or alarm is due, and make the calls.

        It waits at most `timeout_s` seconds (None: LONGEST_S), and may return earlier without any
        call. A call may forget other descriptors that are ready: their calls are not made.
        """
        _restart_watchdog()
        self._count()
        lefts = [LONGEST_S if timeout_s is None else min(timeout_s, LOOK_S)]
        for when, now, look_s in self._alarms.values():
            lefts += [when - now(), look_s]
        wait_s = max(0.0, min(lefts))
        ready = self._poller.poll(wait_s * self._per_second)
        self._count(-1.0 if self._stands else wait_s + LATE_S, 0.0)
        for fd, _ in ready:
            if call := self._calls.get(fd):
                call()
        self._count()
        past = [each for each in self._alarms.items() if each[1][0] <= each[1][1]()]
        # A gap just now: the next turn handles it.
        if machine.running_s() > self._read_at_s + LATE_S:
            past = []
        for due, at in past:
            if self._alarms.get(due) == at:  # an earlier call may have removed or changed it
                del self._alarms[due]
                due()
        self._stands = self._follow()

    def _count(self, most_s: float = LATE_S, counts_s: float = LATE_S) -> None:
        """Count the time since the last call, if it is at most `most_s`; else `counts_s` of it.

        A call that blocks keeps this process from reading others' output: so some of it counts.
        """
        # By `running_s`: `patient_poll` may have excluded a gap already.
        before_s, self._read_at_s = self._read_at_s, machine.running_s()
        if self._read_at_s - before_s > most_s:
            machine.exclude(self._read_at_s - before_s - counts_s)
            self._read_at_s = before_s + counts_s


class SignalPipe:
    """Signals as bytes in a pipe: handlers in C write their numbers, and no Python code runs.

    So it does not matter which thread of this process gets a signal.
    """

    def __init__(self, caught: Iterable[int]) -> None:
        self.caught = frozenset(caught)
        self.fd, self._end = machine.pipe()
        machine.set_blocking(self.fd, False)
        machine.set_blocking(self._end, False)
        self._wakeup_fd = machine.set_wakeup_fd(self._end, warn_on_full_buffer=False)
        # Without a handler of Python's the handler in C writes nothing.
        self.before = {each: machine.signal(each, lambda *_: None) for each in self.caught}

    def read(self) -> list[int]:
        """Return the signals that came since the last call, in their order.

        Other signals go to the earlier wakeup descriptor: another library has handlers for them.
        """
        try:
            numbers = machine.read(self.fd, 4096)
        except BlockingIOError:
            return []
        others = bytes(each for each in numbers if each not in self.caught)
        if others and self._wakeup_fd >= 0:
            with suppress(OSError):  # the other pipe is full
                machine.write(self._wakeup_fd, others)
        return [each for each in numbers if each in self.caught]

    def close(self) -> None:
        """Restore the handlers and the wakeup descriptor of before."""
        for signum, handler in self.before.items():
            machine.signal(signum, signal.SIG_DFL if handler is None else handler)  # None: C's own
        machine.set_wakeup_fd(self._wakeup_fd)
        machine.close(self.fd)
        machine.close(self._end)


class Ear:
    """The signals of a pipe, from any thread, each with whether the terminal sent it.

    The terminal sends a signal to its whole foreground group. Handlers of Python do not learn the
    sender, but a signalfd does, which reads blocked signals; so the signals are blocked in this
    thread. Another thread that has not blocked them takes them instead, and its handler writes to
    the pipe; without a signalfd all go that way. Then signals that a terminal can send count as
    sent by it where this process is in its foreground.
    """

    def __init__(self, pipe: SignalPipe) -> None:
        """Open the signalfd; the caller has blocked the signals before."""
        self._pipe, self._blocked = pipe, machine.signalfd(pipe.caught)
        if self._blocked is None:
            machine.pthread_sigmask(signal.SIG_UNBLOCK, pipe.caught)
        self.fds = [fd for fd in (pipe.fd, self._blocked) if fd is not None]

    def read(self) -> list[tuple[int, bool]]:
        """Return the signals since the last call, each with whether the terminal sent it."""
        pairs = [(each, each in BY_TERMINAL and _is_foreground()) for each in self._pipe.read()]
        if self._blocked is not None:
            with suppress(BlockingIOError):
                while info := machine.read(self._blocked, SIGINFO):
                    signum, _, code = (
                        int.from_bytes(info[i : i + 4], sys.byteorder) for i in (0, 4, 8)
                    )
                    pairs.append((signum, code == SI_KERNEL))
        return pairs

    def close(self) -> None:
        if self._blocked is not None:
            machine.close(self._blocked)


def _is_foreground() -> bool:
    stat = reading.file_text("/proc/self/stat")
    if stat is None:  # macOS
        return machine.isatty(0)
    fields = stat.rpartition(") ")[2].split()  # from field 3 of proc(5) on
    return fields[5 - 3] == fields[8 - 3]  # pgrp and tpgid
