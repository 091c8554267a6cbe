"""Help for a job that hangs: notice that no rank writes anything, and report where the workers are.

The way of a hang: HangHelp._listen -> Decisions.silent -> Supervisor.announce (the line) and
show_stacks -> HangHelp.stacks_wanted -> RollCall.call -> _compare (which rank is waited for) ->
_call_roll (the lines) -> Supervisor.stacks_shown -> Decisions.stacks_shown, which ends the launch
with --on-hang kill.

Output through our pipes is seen at once; of a worker that writes to a file by itself, the file's
time of change is looked at when the others have been silent. (A clock that is set meanwhile can
make that silence seem longer or shorter, once.) Workers that wait for a slow reader of their output
do not count as silent; nor do workers of which one is stopped, as the others may wait for it. With
--on-hang kill a rank that is stopped for so long counts as hanging, but no hang is looked for while
a debugger holds one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from spawnlaunch.base import machine
from spawnlaunch.cli import flags
from spawnlaunch.hang import stacks
from spawnlaunch.node import proc
from spawnlaunch.run import observer
from spawnlaunch.run.processes import Running
from spawnlaunch.run.supervisor import Supervisor
from spawnlaunch.workers import launches

MOST_LOOK_S, LOOKS = 10.0, 100  # between two looks at the clock; of the limit at least so many


class HangHelp(observer.Observer):
    """The work of --hang-timeout and --stack-on-usr2; the limit is of silence, 0: never."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor, launch = supervisor, supervisor.launch
        self._loop, self._output = supervisor.loop, supervisor.output
        self._limit_s = launch.request.hang_timeout_s
        self._look_s = min(MOST_LOOK_S, self._limit_s / LOOKS)  # by which silence may be off
        self._is_for_the_end = launch.request.on_hang == flags.KILL
        self._files: list[str] = []
        self._since, self._lost_s = machine.running_s(), 0.0
        self._stopped_at = self._since  # or continued, or begun
        self._why_not = ""  # of stopped workers, last
        self.roll_call = stacks.RollCall(
            self._loop, self._output, launch.scratch, self._on_roll_called, supervisor.note
        )

    def began(self, workers: Sequence[launches.Worker], _: Mapping[int, Running], /) -> None:
        streams = (route for worker in workers for route in worker.routes)
        self._files = [route.file for route in streams if route.file and route.is_redirected]
        self.resumed()

    def resumed(self) -> None:
        """Start the silence again: earlier times do not count."""
        self._since = self._stopped_at = machine.running_s()
        self._loop.alarm(self._listen, self._limit_s or None, look_s=self._look_s)

    def ran(self) -> None:
        self._loop.alarm(self._listen, None)
        self.roll_call.cancel()

    def stacks_wanted(self, ranks: Iterable[tuple[launches.Worker, int]], heading: str) -> None:
        self.roll_call.call(ranks, heading)

    def _on_roll_called(self) -> None:
        self._supervisor.stacks_shown(None)

    def _listen(self) -> None:
        quiet_s = self._quiet_s()
        if quiet_s < self._limit_s:
            self._loop.alarm(self._listen, self._limit_s - quiet_s, look_s=self._look_s)
        else:
            self.resumed()
            self._supervisor.rules.silent()

    def _quiet_s(self) -> float:
        stopped = self._supervisor.stopped()
        if stopped and self._is_for_the_end:
            quiet_s = machine.running_s() - self._stopped_at
        elif stopped:
            pids = " ".join(map(str, stopped.values()))
            self._print_why_not(stopped, f"is stopped; run kill -CONT {pids}")
            return 0.0
        elif self._output.is_held_up:
            return 0.0
        else:
            self._look_at_files()
            quiet_s = max(0.0, min(machine.running_s() - self._since, self._output.silent_s))
        if quiet_s < self._limit_s or not self._is_for_the_end:
            return quiet_s
        held = {
            rank: pid
            for rank, pid in self._supervisor.pids().items()
            if proc.is_stopped_by_debugger(pid)
        }
        if held:
            self._print_why_not(held, "is held by a debugger")
            self._since = self._stopped_at = machine.running_s() - self._limit_s / 2
            return self._limit_s / 2  # it may be let go at any time from now on
        return quiet_s

    def _print_why_not(self, ranks: Mapping[int, int], why: str) -> None:
        who = ", ".join(f"rank {rank} (pid {pid})" for rank, pid in ranks.items())
        words = f"no hang is looked for while {who} {why}"
        if words != self._why_not:
            self._output.say([words])
        self._why_not = words

    def _look_at_files(self) -> None:
        """Note when a file was last written to: that was before any gap since the last look."""
        lost_s = machine.monotonic() - machine.running_s()
        gap_s, self._lost_s = lost_s - self._lost_s, lost_s
        for path in self._files:
            with suppress(OSError):
                age_s = max(0.0, machine.time() - machine.stat(path).st_mtime - gap_s)
                self._since = max(self._since, machine.running_s() - age_s)
