"""Where the workers are: the stacks of each of their processes, from the best source there is.

1. The process itself, where it catches the signal SPAWNLAUNCH_STACK_SIGNAL: faulthandler writes the
   stacks of all its threads to its stderr, even while it waits in C. `--preload` registers that,
   the bundled loop does, and a script may, in two lines:

       import faulthandler, os
       faulthandler.register(int(os.environ["SPAWNLAUNCH_STACK_SIGNAL"]))

2. py-spy, where it is installed and may look.
3. The kernel, which knows no Python, but what each thread waits for.

One process after the other is asked, so that nothing is told in pieces. All of it happens in turns
of the loop: the launcher goes on watching meanwhile.
"""

from __future__ import annotations

import os
import time
from collections import deque

from spawnlaunch.records import NamedTuple
from spawnlaunch.run import signals
from spawnlaunch.run.hang.sources import Spying, find_py_spy, kernel_view
from spawnlaunch.run.proc import Process, below, catches, is_alive, is_proc_ours, look
from spawnlaunch.run.tree import send

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from spawnlaunch.run.loop import Loop
    from spawnlaunch.run.output import Output
    from spawnlaunch.run.worker import Worker

ANSWER_S = 2.0  # for a process to tell its stacks, which takes it milliseconds
QUIET_S = 0.1  # without another word: it has told all
ALL_S = 30.0  # for all processes together, and from then on the kernel is asked, which is quick


class Target(NamedTuple):
    """A process to be asked."""

    worker: Worker
    process: Process
    is_worker: bool  # and no child of one

    @property
    def name(self) -> str:
        """As a person looks for it."""
        below = "" if self.is_worker else f", below {self.process.parent}"
        return f"{self.worker.name} (pid {self.process.pid}{below})"


class Stacks:
    """Asks processes for their stacks, and shows them; calls `done` at the end."""

    def __init__(self, loop: Loop, output: Output, done: Callable[[], None]) -> None:
        self._loop = loop
        self._output = output
        self._done = done
        self._targets: deque[Target] = deque()
        self._busy = False
        self._end_at = 0.0  # monotonic clock, seconds
        self._asking: Asking | None = None
        self._spying: Spying | None = None

    def tell(self, workers: Iterable[tuple[Worker, int]]) -> None:
        """Ask these workers, each with its pid, and what they have started."""
        if self._busy:
            return
        if not is_proc_ours():
            self._output.say(["no stacks can be told: /proc does not show our PID namespace"])
            workers = ()
        for worker, pid in workers:
            for process in below(filter(None, [look(pid)])):
                if not process.dead:
                    self._targets.append(Target(worker, process, process.pid == pid))
        self._busy = True
        self._end_at = time.monotonic() + ALL_S
        self._next()

    def cancel(self) -> None:
        """Ask nobody any more."""
        for call in (self._listen, self._next):
            self._loop.alarm(call, None)
        if self._spying:
            self._spying.cancel()
        self._targets.clear()
        self._busy, self._asking, self._spying = False, None, None

    def _next(self) -> None:
        """The next process; one after the other, each in a turn of its own."""
        if not self._targets:
            self._busy = False
            self._done()
            return
        target = self._targets.popleft()
        if not is_alive(target.process):
            self._loop.alarm(self._next, 0)
        elif time.monotonic() > self._end_at:
            self._ask_the_kernel(target, "")
        elif catches(target.process.pid, signals.STACKS):
            self._ask(target)
        else:
            self._spy(target)

    # The process itself

    def _ask(self, target: Target) -> None:
        self._output.say([f"stacks of {target.name}, told by itself:"])
        self._asking = Asking(target, self._output)
        send(signals.STACKS, [target.process])
        self._loop.alarm(self._listen, QUIET_S)

    def _listen(self) -> None:
        asking = self._asking
        assert asking is not None
        if asking.is_telling():
            self._loop.alarm(self._listen, QUIET_S)
            return
        self._asking = None
        if asking.told:
            self._output.show(asking.unseen())
            self._next()
        else:
            self._spy(asking.target)

    # py-spy

    def _spy(self, target: Target) -> None:
        program = find_py_spy()
        if program is None:
            self._ask_the_kernel(target, "")
            return

        def told(text: str, why: str) -> None:
            self._spying = None
            if text:
                self._output.say([f"stacks of {target.name}, by py-spy:"])
                self._output.show(text)
                self._next()
            else:
                self._ask_the_kernel(target, f" (py-spy: {why})")

        try:
            self._spying = Spying(program, target.process.pid, self._loop, told)
        except OSError as error:
            self._ask_the_kernel(target, f" (py-spy: {error.strerror})")

    # The kernel

    def _ask_the_kernel(self, target: Target, why: str) -> None:
        found = kernel_view(target.process.pid)
        if found:
            name = _command(target.process.pid)
            self._output.say([f"{target.name}: {name}, as the kernel sees it{why}:"])
            self._output.show("".join(f"    {line}\n" for line in found))
        self._loop.alarm(self._next, 0)


class Asking:
    """One process that tells its stacks on its stderr: how far it is."""

    def __init__(self, target: Target, output: Output) -> None:
        self.target = target
        self._source = output.stderr_of(target.worker.rank)
        self._file = target.worker.routes.stderr.file
        self._before = self._last = self._length()
        self._until = time.monotonic() + ANSWER_S

    @property
    def told(self) -> bool:
        """Whether it has said anything, as far as that can be seen."""
        return self._last > self._before or not self._is_visible

    @property
    def _is_visible(self) -> bool:
        """A worker alone may write to our stderr itself."""
        return self._source is not None or self._file is not None

    def is_telling(self) -> bool:
        """Whether it may have more to say than at the last call."""
        last, self._last = self._last, self._length()
        if time.monotonic() > self._until:  # it may be one that always has something to say
            return False
        return self._last > last or (self._last == self._before and self._is_visible)

    def unseen(self) -> str:
        """What it has told without being shown here."""
        if self._source is not None:
            fresh = self._source.tail[self._before - self._source.received :]
            return "" if self._source.is_shown else fresh.decode(errors="replace")
        return _end_of(self._file, self._before) if self._file else ""

    def _length(self) -> int:
        if self._source is not None:
            return self._source.received
        try:
            return os.stat(self._file).st_size if self._file else 0
        except OSError:
            return 0


def _command(pid: int) -> str:
    """The beginning of its command line."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(200).replace(b"\0", b" ").decode(errors="replace").split()
    except OSError:
        words = []
    return " ".join(words)[:60] or "no name"


def _end_of(path: str, offset: int) -> str:
    """What has been added to a file."""
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            return file.read().decode(errors="replace")
    except OSError as error:
        return f"cannot read {path}: {error.strerror}\n"
