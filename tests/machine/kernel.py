"""The clock and the scheduler of a simulated Linux.

Each process is a greenlet, which runs only while the scheduler has switched to it: one seed, one
order of events. It calls the kernel through the door; each call takes a little time, may be where
another process goes on, and is where signals are delivered. What happens later stands in a heap.

Sources: the manual pages of section 2 and 7 that are named where it matters, and the behaviour of
Linux itself, to which tests/machine/conformance compares this.
"""

import heapq
import random
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from greenlet import GreenletExit, getcurrent

from tests.machine.descriptors import Description
from tests.machine.errors import refused
from tests.machine.network import Network
from tests.machine.node import Node
from tests.machine.process import BLOCKED, READY, Process, Sent

MOST_CALLS = 400_000  # of all processes of a scenario


class Refused(NamedTuple):
    """A call of ours that the system refuses: with an error, from when and until when.

    And not before it was made so many times.
    """

    call: str
    error: int
    since: float
    until: float
    after: int = 0


class Kernel:
    """The clock and the scheduler of all nodes.

    `restless` is how often a call is where another process goes on, of 1.
    """

    CALL_S = 2e-5  # that a call takes, at most

    def __init__(self, seed: int, restless: float = 0.2, trace: bool = False) -> None:
        self.random = random.Random(seed)
        self._chance = self.random.random
        self.now, self.wall = 1000.0, 1.7e9  # the wall clock is ahead by so much
        self.restless = restless
        self.nodes: list[Node] = []
        self.network = Network(self)
        self.ready: list[Process] = []
        self.current: Process | None = None
        self.hub = getcurrent()
        self.is_over = False
        self.calls = 0
        self.refused: Refused | None = None
        self._made = 0  # how often the call was made that is to be refused
        self.call_s = self.CALL_S
        self.deaths = Description()  # of which somebody begins to die
        self.spins = False  # there were more calls than a launch can need
        self.tracebacks: list[str] = []
        self.is_traced = trace
        self.trace: list[str] = []
        self.signals: list[Sent] = []  # all that processes have sent to others
        self._heap: list[tuple[float, int, Callable[[], Any]]] = []
        self._order = 0
        self._awaited: dict[str, list[Callable[[], Any]]] = {}
        self._past: set[str] = set()

    def note(self, who: object, what: str) -> None:
        if self.is_traced:
            self.trace.append(f"{self.now - 1000.0:11.6f}  {who!s:>10}  {what}")

    def freeze(self, for_s: float) -> None:
        """Nobody runs for so long, and nothing is told of it: a freezer, a suspended machine."""
        self.note("machine", f"stands still for {for_s:.3f} s")
        self.now += for_s
        for node in self.nodes:
            if not node.is_frozen:  # else it is counted as that ends
                node.lose(self.now - for_s)

    def freeze_node(self, node: Node, for_s: float) -> None:
        """Nobody runs there for so long: the cgroup of a launch, a paused container."""
        if node.is_frozen:
            return
        node.is_frozen = True
        self.note(node.name, f"stands still for {for_s:.3f} s")
        began = self.now
        self.later(for_s, lambda: self._thaw(node, began))

    def _thaw(self, node: Node, began: float) -> None:
        node.is_frozen = False
        node.lose(began)
        for process in node.processes.values():
            if process.state == READY and not process.stopped and process not in self.ready:
                self.ready.append(process)

    def after(self, moment: str, call: Callable[[], Any]) -> None:
        """Do something when this comes to pass for the first time; "": now."""
        if not moment:
            call()
        elif moment not in self._past:
            self._awaited.setdefault(moment, []).append(call)

    def passes(self, moment: str) -> None:
        if moment not in self._past:
            self._past.add(moment)
            for call in self._awaited.pop(moment, ()):
                call()

    def at(self, when: float, call: Callable[[], Any]) -> None:
        """Do something at this time."""
        self._order += 1
        heapq.heappush(self._heap, (when, self._order, call))

    def later(self, in_s: float, call: Callable[[], Any]) -> None:
        self.at(self.now + in_s, call)

    def run(self, most_s: float = 1e6) -> None:
        """Until nothing can happen any more, or the time is over."""
        until = self.now + most_s
        while not self.is_over:
            self._fire_due()
            if self.ready:
                index = self.random.randrange(len(self.ready)) if len(self.ready) > 1 else 0
                process = self.ready.pop(index)
                cannot = process.stopped or process.held or process.node.is_frozen
                if cannot or process.state != READY:
                    continue
                self.current = process
                process.greenlet.switch()
                self.current = None
            elif self._heap and self._heap[0][0] <= until:
                self.now = max(self.now, self._heap[0][0])
            else:
                return

    def _fire_due(self) -> None:
        while self._heap and self._heap[0][0] <= self.now:
            heapq.heappop(self._heap)[2]()

    def leave(self, process: Process) -> None:
        """The thread of control of a process has ended."""
        while process in self.ready:
            self.ready.remove(process)

    # Called by processes

    def enter(self, process: Process, call: str) -> None:
        """A call begins: it takes some microseconds, in which others may do something."""
        if process.code is not None or self.is_over:
            raise GreenletExit  # it has been killed, and what follows is Python's tidying up
        self.calls += 1
        if self.calls > MOST_CALLS:
            self.spins = self.is_over = True
            raise GreenletExit
        chance = self._chance()
        self.now += chance * self.call_s
        if (self._heap and self._heap[0][0] <= self.now) or chance < self.restless:
            self.pause(process)
        process.deliver()
        if self.refused is not None and call == self.refused.call and process.is_ours:
            self._made += 1
            is_time = self.refused.since <= self.now < self.refused.until
            if is_time and self._made > self.refused.after:
                raise refused(self.refused.error)

    def look_at_clock(self, process: Process) -> float:
        """As `enter`, but nobody else can do something: of a clock that would show nothing."""
        if process.code is not None or self.is_over:
            raise GreenletExit
        self.now += 1e-7
        return self.now

    def pause(self, process: Process) -> None:
        """Let others go on, if they can; then go on."""
        self.ready.append(process)
        self.switch_away(process)

    def switch_away(self, process: Process) -> None:
        """Until somebody lets it go on."""
        self.hub.switch()
        if self.is_over:
            raise GreenletExit

    def wait(
        self,
        process: Process,
        is_there: Callable[[], Any],
        until: float | None = None,
        on: Iterable[Description] = (),
    ) -> Any:
        """Block until `is_there` says something true, which is the result; None: the time is over.

        `on` are what it waits for beside its own children and signals.
        """
        waited = list(on)
        for each in waited:
            each.waiters.append(process)
        if until is not None:
            self.at(until, process.wake)
        try:
            while True:
                process.deliver()
                found = is_there()
                if found:
                    return found
                if until is not None and self.now >= until:
                    return None
                process.state = BLOCKED
                self.switch_away(process)
        finally:
            for each in waited:
                each.waiters.remove(process)

    def close(self) -> None:
        """End all that is left of the simulation: no call of theirs does anything any more."""
        self.is_over = True
        for node in self.nodes:
            for process in list(node.processes.values()):
                if process.greenlet is not None and not process.greenlet.dead:
                    process.greenlet.throw(GreenletExit)
