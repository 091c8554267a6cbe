"""How a call begins and waits, and the clock."""

from collections.abc import Callable, Iterable
from typing import Any

from greenlet import GreenletExit

from tests.machine.descriptors import Description
from tests.machine.kernel import Kernel
from tests.machine.process import Process


class Calls:
    """What all calls have. `kernel.current` is who makes them."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    @property
    def _running(self) -> Process:
        process = self._kernel.current
        if self._kernel.is_over:
            raise GreenletExit
        return process

    def begin(self, call: str) -> Process:
        process = self._kernel.current
        if self._kernel.is_over:
            raise GreenletExit
        assert process is not None, f"{call} outside of the simulation"
        self._kernel.enter(process, call)
        return process

    def wait(
        self,
        process: Process,
        is_there: Callable[[], Any],
        timeout_s: float | None,
        on: Iterable[Description] = (),
    ) -> Any:
        kernel = self._kernel
        until = None if timeout_s is None else kernel.now + timeout_s
        return kernel.wait(process, is_there, until, on)

    # The clock

    def monotonic(self) -> float:
        return self._kernel.look_at_clock(self._running)

    def running_s(self) -> float:
        process = self._running
        return self._kernel.look_at_clock(process) - process.uncounted_s

    def exclude(self, gap_s: float) -> None:
        self._running.uncounted_s += gap_s

    def time(self) -> float:
        return self.monotonic() + self._kernel.wall

    def sleep(self, seconds: float) -> None:
        self.wait(self.begin("nanosleep"), lambda: False, seconds)
