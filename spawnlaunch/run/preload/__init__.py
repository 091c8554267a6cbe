"""The image of --preload: a process that imports the modules, and from which workers are forked.

    guard       asks for workers, and hears whatever happens while the modules are imported
      image       imports the modules, then waits to be asked
        forker      forks the workers of one attempt, tells their pids, and ends
          worker, ...   which the kernel then gives to the guard, the next subreaper above

So a worker is the guard's child, as if it had forked it. clone(2) with CLONE_PARENT would give that
in one step, but runs none of the handlers that libraries have for a fork (pthread_atfork(3)).
"""

from __future__ import annotations

import os
import pickle
import select
import socket
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from spawnlaunch.base import errors, events, machine, say, signals
from spawnlaunch.base.signals import signal
from spawnlaunch.node import proc
from spawnlaunch.outcome import failures
from spawnlaunch.run import decisions
from spawnlaunch.run.preload import forked
from spawnlaunch.workers import launches, starting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

ANSWER_S = 60.0  # for a fork, which takes milliseconds unless the machine is very busy
HAND_OVER_S = 0.001  # until a worker looks again whether it has been handed over


class Image:
    """The guard's side of the image.

    Raises UsageError where no other process can be started.
    """

    def __init__(self, launch: launches.Launch, caught: Iterable[int]) -> None:
        self.modules = ",".join(launch.request.preload)
        self._socket, image_end = machine.socketpair()
        guard = machine.getpid()

        def image() -> None:
            machine.set_wakeup_fd(-1)
            signals.set_default((*caught, signal.SIGCONT))
            _be(image_end, launch, guard)

        try:
            self.pid = machine.fork(image)
        except OSError as error:
            raise errors.UsageError(
                f"--preload {self.modules}: cannot start a process that imports it: "
                f"{say.describe_refusal(error)}"
            ) from None
        image_end.close()
        self._socket.settimeout(ANSWER_S)

    def listen(self, loop: events.Loop, rules: decisions.Decisions) -> None:
        """Wait until the import has ended, or the launch is to end."""
        fd = self._socket.fileno()
        loop.watch(fd, lambda: None)
        while not rules.cause and (
            rules.is_suspended or not (proc.has_ended(self.pid) or _is_readable(self._socket))
        ):
            loop.turn()
        loop.forget(fd)

    def failure(self) -> tuple[int, str] | None:
        """Return why the import failed, once the image has answered: an exit status, and a message.

        Raises UsageError where the user can mend it.
        """
        answer, _ = _receive(self._socket) if _is_readable(self._socket) else (None, [])
        if answer == "":
            return None
        if answer is not None:
            raise errors.UsageError(answer)
        machine.kill(self.pid, signal.SIGKILL)  # it may have closed our socket, and still run
        code = os.waitstatus_to_exitcode(machine.waitpid(self.pid, 0)[1])
        return failures.exit_status(code) or 1, (
            f"--preload {self.modules}: the process that imports it "
            f"{failures.end_in_words(code)}; leave it "
            "out, and import it in the script"
        )

    def start_worker(self, worker: launches.Worker, ends: dict[int, int]) -> None:
        """Ask the image for a worker, with these descriptors under the numbers given.

        Raises OSError.
        """
        try:
            self._send((worker, list(ends)), list(ends.values()))
        except OSError as error:
            raise self._named(error) from None

    def _send(self, message: object, fds: Sequence[int] = ()) -> None:
        _send(self._socket, message, fds, partial(self._await, select.POLLOUT))

    def _await(self, event: int) -> None:
        """Wait until the image reads or writes its socket, and continue it where it is stopped.

        Raises TimeoutError. Nothing else is heard meanwhile.
        """
        poller, until = machine.poll(), machine.running_s() + ANSWER_S
        poller.register(self._socket, event)
        while not events.patient_poll(poller, decisions.STOPPED_S):
            if machine.running_s() > until or events.WATCHDOG in machine.remembered:
                raise TimeoutError
            if proc.is_stopped(self.pid):
                say.say([f"the image (pid {self.pid}) was stopped: continued it"])
                machine.kill(self.pid, signal.SIGCONT)

    def deliver(self, failed: OSError | None) -> tuple[list[tuple[int, float]], OSError | None]:
        """Return pid and time of each worker that was asked for, now children of this process.

        The second part of the result is why another worker could not be started: `failed`, or the
        error of a fork. The image gets all requests at once: on a busy machine it takes long until
        it runs again.
        """
        try:
            self._send(None)
            self._await(select.POLLIN)
            pids, is_done = _receive(self._socket)[0], _receive(self._socket)[0]
            if not is_done:
                raise ConnectionResetError
        except OSError as error:
            machine.kill(self.pid, signal.SIGKILL)  # so its forks become our children
            return [], failed or self._named(error)
        now = machine.monotonic()
        for code in (-pid for pid in pids if pid < 0):
            failed = OSError(code, os.strerror(code))
        return [(pid, now) for pid in pids if pid > 0], failed

    def _named(self, error: OSError) -> OSError:
        """Return the same error, or another for the end or the silence of the image."""
        if not isinstance(error, (ConnectionError, TimeoutError)):
            return error
        return OSError(f"the image of --preload {self.modules} (pid {self.pid}) does not answer")


# The image


def _be(connection: socket.socket, launch: launches.Launch, guard: int) -> NoReturn:
    """Import the modules, and fork the workers asked for; never return as a second guard."""
    status, become = 1, None
    try:
        machine.die_with_parent(guard)
        machine.rename_process("spawnlaunch img", f"spawnlaunch image of {guard}")
        machine.pthread_sigmask(signal.SIG_SETMASK, launch.blocked | signals.TERMINAL)
        try:
            become = forked.worker_maker(launch)
        except errors.UsageError as error:
            _send(connection, str(error))
            machine.exit_now(2)
        _send(connection, "")
        fork = partial(machine.fork, partial(_deliver, connection, guard, launch, become))
        # A forker that ends badly has sent no pids: a library's handler of forks ended it, say.
        while connection.recv(1, socket.MSG_PEEK) and not machine.waitpid(fork(), 0)[1]:
            _send(connection, True)
        status = 0
    except SystemExit as leaving:
        status = forked.status_of(leaving)
    except BaseException as error:
        if become:
            status = say.fatal(error, " in the image")
        else:
            forked.print_exception(error)
    finally:
        machine.exit_now(status)


def _deliver(
    connection: socket.socket, guard: int, launch: launches.Launch, become: starting.BecomeWorker
) -> NoReturn:
    """Fork the workers of one attempt."""
    status = starting.CANNOT_EXECUTE
    try:
        machine.die_with_parent(machine.getppid())
        forker = machine.getpid()
        its_end, forker_end = machine.pipe()
        pids: list[int] = []  # or, last, the error that kept one from being forked, below 0

        def hand_over(ends: dict[int, int]) -> None:
            for number, fd in ends.items():
                machine.dup2(fd, number)
            machine.close(forker_end)
            # The guard has to be our parent first, whose end prctl(2) asks for. The pipe that the
            # forker holds is closed a moment before the forker has ended.
            machine.read(its_end, 1)
            while machine.getppid() == forker:
                machine.sleep(HAND_OVER_S)
            machine.die_with_parent(guard)

        while (request := _receive(connection))[0]:
            (worker, numbers), fds = request
            first = partial(hand_over, dict(zip(numbers, fds, strict=True)))
            child = partial(starting.become_worker, worker, launch, become, first)
            if not pids or pids[-1] > 0:
                try:
                    pids.append(machine.fork(child))
                except OSError as error:
                    pids.append(-(error.errno or os.EX_OSERR))
            for fd in fds:
                machine.close(fd)
        _send(connection, pids)
        status = 0
    except BaseException as error:
        status = say.fatal(error, " in the image")
    finally:
        machine.exit_now(status)


# Messages between guard and image


def _send(
    to: socket.socket, message: object, fds: Sequence[int] = (),
    wait: Callable[[], None] = lambda: None,
) -> None:  # fmt: skip
    """Send a message; `wait` waits until there is room. Raises OSError."""
    content = pickle.dumps(message)
    head = len(content).to_bytes(4, "big")
    wait()
    if fds:
        machine.send_fds(to, [head], fds)
    else:
        to.sendall(head)
    while content:
        wait()
        content = content[to.send(content) :]


def _receive(of: socket.socket) -> tuple[Any, list[int]]:
    """Receive a message and the descriptors that came with it; None where no other will come.

    Raises OSError.
    """
    head, fds = machine.recv_fds(of, 4, 2)
    if not head:
        return None, []
    size, content = int.from_bytes(head, "big"), b""
    while len(content) < size:
        more = of.recv(size - len(content))
        if not more:
            return None, []
        content += more
    return pickle.loads(content), fds


def _is_readable(connection: socket.socket) -> bool:
    poller = machine.poll()
    poller.register(connection, select.POLLIN)
    return bool(events.patient_poll(poller, 0.0))
