"""Wait for several descriptors at once, and call who waits for each.

epoll hands out descriptors in the order in which they became ready: with a pidfd for every worker
that is the order of their exits, which `waitid` does not tell. Where there is no epoll, poll does
the same without the order. Whoever waits for a time has an alarm.

Patience with others (a grace, silence, a reader) is measured by `machine.running_s`, which stands
while this process cannot run: stopped by a signal or a debugger, frozen with its cgroup, paused
with its container or virtual machine. Whoever is waited for may not have run either. What a user or
a resource manager limits (--timeout, Slurm's KillWait) is measured by the monotonic clock. The
gang's rules have a clock of their own, which stands only in long gaps: a node must not believe for
long that it is still wanted.

A wait that takes over LATE_S longer than it was to take is a gap, and nothing of it counts: how
much of it we ran is not known. So while somebody's time runs, no wait is longer than LOOK_S. On a
busy machine a process waits for its turn too; that is a gap only beyond LATE_S. Whoever waits
for much longer may have rarer looks (`Loop.alarm`).
"""

from __future__ import annotations

import errno
import select
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress

from spawnlaunch.base import machine, reading, say
from spawnlaunch.base.signals import signal

# The kernel takes milliseconds in an int, which is 24 days (epoll_wait(2), poll(2)). Whoever waits
# for longer than this waits again.
LONGEST_S = 86400.0
LOOK_S, LATE_S = 0.5, 1.0
HELD_S = 8.0  # in which who has to do something begins to, on a busy machine too
COME_BACK = "this process has to come back to waiting"  # that is remembered

# signalfd_siginfo in signalfd(2): its size; it begins with number, errno and code, of 4 bytes each.
SIGINFO = 128
SI_KERNEL = 0x80  # the code of a signal that the kernel sent, here: the terminal (sigaction(2))
BY_TERMINAL = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGWINCH)


def _wind_up() -> None:
    """Put off the end of a process that `must_come_back`."""
    if COME_BACK in machine.remembered:
        with suppress(OSError):  # refused
            machine.setitimer(signal.ITIMER_REAL, HELD_S)


def must_come_back() -> None:
    """From now on the kernel ends this process when it has not waited here for HELD_S."""
    machine.remembered[COME_BACK] = True
    machine.signal(signal.SIGALRM, signal.SIG_DFL)
    machine.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    _wind_up()


def patient_poll(poller: select.poll, for_s: float) -> list[tuple[int, int]]:
    """What is ready, at the latest after so many seconds without gaps."""
    until = machine.running_s() + for_s
    while True:
        _wind_up()
        wait_s = max(0.0, min(until - machine.running_s(), LOOK_S))
        began = machine.monotonic()
        ready = poller.poll(wait_s * 1000)
        passed_s = machine.monotonic() - began
        if passed_s > wait_s + LATE_S:
            machine.lose(passed_s)
        if ready or machine.running_s() >= until:
            return ready


def patient_sleep(for_s: float) -> None:
    """Wait for so many seconds without gaps."""
    patient_poll(machine.poll(), for_s)


class Loop:
    """Descriptors that are waited for. They stay their owners' to close."""

    def __init__(self, follow: Callable[[], bool] = lambda: False, has_order: bool = True) -> None:
        """`follow` is called at the end of each turn, and tells whether nobody's time runs now:

        those who are waited for are kept from running. `has_order`: what was ready first comes
        first, where the system can tell.
        """
        self._follow = follow
        self._calls: dict[int, Callable[[], None]] = {}
        # When, the clock of that, and how often it is looked at.
        self._alarms: dict[Callable[[], object], tuple[float, Callable[[], float], float]] = {}
        self._seen = machine.running_s()  # when it was looked at the clock last
        self.stands = False
        self._poller: select.epoll | select.poll = machine.poll()
        self._per_second = 1000
        epoll = None
        if not has_order:
            return
        try:
            (made := machine.epoll()).poll(0)
            epoll = made
            epoll.register(epoll)
        except AttributeError:
            pass
        except OSError as error:
            if epoll and error.errno == errno.EINVAL:
                # So it works, but not with itself (epoll_ctl(2)).
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
        """Call `call` once, after so many seconds in which we run; `always`: in all.

        Each has one alarm, and None takes it back. A gap of less than `look_s` may count as time in
        which we run: a long wait that may be inexact wakes us more rarely.
        """
        self._alarms.pop(call, None)
        if after_s is not None:
            self._count()  # else a gap that has just been would be waited for once more
            now = machine.monotonic if always else machine.running_s
            self._alarms[call] = now() + after_s, now, LONGEST_S if always else max(LOOK_S, look_s)

    def turn(self, timeout_s: float | None = None) -> None:
        """Wait until something is ready, and make the calls; at most `timeout_s` (None: long).

        It may come back earlier, with nothing done. A call may forget descriptors that are ready
        too: they are not called any more.
        """
        _wind_up()
        self._count()
        lefts = [LONGEST_S if timeout_s is None else min(timeout_s, LOOK_S)]
        for when, now, look_s in self._alarms.values():
            lefts += [when - now(), look_s]
        wait_s = max(0.0, min(lefts))
        ready = self._poller.poll(wait_s * self._per_second)
        self._count(-1.0 if self.stands else wait_s + LATE_S, 0.0)
        for fd, _ in ready:
            if call := self._calls.get(fd):
                call()
        self._count()
        past = [each for each in self._alarms.items() if each[1][0] <= each[1][1]()]
        if machine.running_s() > self._seen + LATE_S:  # the gap is in between: it is for the next
            past = []
        for due, at in past:
            if self._alarms.get(due) == at:  # an earlier one may have taken it back
                del self._alarms[due]
                due()
        self.stands = self._follow()

    def _count(self, most_s: float = LATE_S, counts_s: float = LATE_S) -> None:
        """The time since this was called last counts, if it is not more than so much.

        Else only some of it does: a call that blocks keeps us from hearing others, and each may.
        """
        # By the clock of patience: what `patient_poll` has taken off is not taken off once more.
        seen, self._seen = self._seen, machine.running_s()
        if self._seen - seen > most_s:
            machine.lose(self._seen - seen - counts_s)
            self._seen = seen + counts_s


class SignalPipe:
    """Signals as bytes in a pipe: the handlers in C write their numbers, and nothing else runs.

    So it does not matter which thread of this process gets a signal.
    """

    def __init__(self, caught: Iterable[int]) -> None:
        self.caught = frozenset(caught)
        self.fd, self._end = machine.pipe()
        machine.set_blocking(self.fd, False)
        machine.set_blocking(self._end, False)
        self._wakeup_fd = machine.set_wakeup_fd(self._end, warn_on_full_buffer=False)
        # Without a handler nothing is written.
        self.before = {each: machine.signal(each, lambda *_: None) for each in self.caught}

    def read(self) -> list[int]:
        """The signals that came since the last call, in their order.

        Others, which who was here before us has handlers for, are told to him.
        """
        try:
            numbers = machine.read(self.fd, 4096)
        except BlockingIOError:
            return []
        others = bytes(each for each in numbers if each not in self.caught)
        if others and self._wakeup_fd >= 0:
            with suppress(OSError):  # he has as many as he can take
                machine.write(self._wakeup_fd, others)
        return [each for each in numbers if each in self.caught]

    def close(self) -> None:
        """Have the handlers of before."""
        for signum, handler in self.before.items():
            machine.signal(signum, signal.SIG_DFL if handler is None else handler)  # None: C's own
        machine.set_wakeup_fd(self._wakeup_fd)
        machine.close(self.fd)
        machine.close(self._end)


class Ear:
    """The signals of a pipe, whichever thread gets them, each with whether it was typed.

    Typed: the terminal has sent it to its whole foreground group. No handler of Python's is told
    that, but a signalfd is, which reads what is blocked; so the signals are blocked in this thread.
    Another thread that has not blocked them takes them away, and calls the handler; without a
    signalfd all are taken so. Then those that a terminal sends count as typed where we are in its
    foreground.
    """

    def __init__(self, pipe: SignalPipe) -> None:
        """The signals are blocked by now."""
        self._pipe, self._blocked = pipe, machine.signalfd(pipe.caught)
        if self._blocked is None:
            machine.pthread_sigmask(signal.SIG_UNBLOCK, pipe.caught)
        self.fds = [fd for fd in (pipe.fd, self._blocked) if fd is not None]

    def read(self) -> list[tuple[int, bool]]:
        """The signals that came since the last call."""
        heard = [(each, each in BY_TERMINAL and _is_foreground()) for each in self._pipe.read()]
        if self._blocked is not None:
            with suppress(BlockingIOError):
                while info := machine.read(self._blocked, SIGINFO):
                    signum, _, code = (
                        int.from_bytes(info[i : i + 4], sys.byteorder) for i in (0, 4, 8)
                    )
                    heard.append((signum, code == SI_KERNEL))
        return heard

    def close(self) -> None:
        if self._blocked is not None:
            machine.close(self._blocked)


def _is_foreground() -> bool:
    stat = reading.file_text("/proc/self/stat")
    if stat is None:  # macOS
        return machine.isatty(0)
    fields = stat.rpartition(") ")[2].split()
    return (
        fields[5 - 3] == fields[8 - 3]
    )  # pgrp and tpgid of proc(5), whose third is the first here
