"""Help for a job that hangs: notice that no rank writes anything, and report where the workers are.

The way of a hang: HangHelp._listen -> Decisions.silent -> Supervisor.show_stacks (makes the
heading) -> HangHelp.stacks_wanted -> RollCall.call -> _compare -> _report (prints the heading and
which rank is waited for) -> _next, for each process -> _call_roll (prints the groups) ->
HangHelp._on_roll_called -> Supervisor.stacks_shown -> Decisions.stacks_shown, which ends the launch
with --on-hang kill.

Output through our pipes is seen at once; of a worker that writes to a file by itself, it is seen
when the file's time of change is another one than before. Workers that wait for a slow reader of
their output do not count as silent; nor do workers of which one is stopped, as the others may wait
for it. With --on-hang kill a rank that is stopped for so long counts as hanging, but no hang is
looked for while a debugger holds one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from spawnlaunch.base import events, machine
from spawnlaunch.cli import flags
from spawnlaunch.hang import stacks
from spawnlaunch.node import proc
from spawnlaunch.run import observer
from spawnlaunch.run.processes import Running
from spawnlaunch.run.supervisor import Supervisor
from spawnlaunch.workers import launches

MOST_LOOK_S, LOOKS = 10.0, 100  # between two looks at the workers; of the limit at least so many


class HangHelp(observer.Observer):
    """The work of --hang-timeout and --stack-on-usr2; the limit is of silence, 0: never."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor, launch = supervisor, supervisor.launch
        self._loop, self._output = supervisor.loop, supervisor.output
        self._limit_s = launch.request.hang_timeout_s
        self._look_s = min(MOST_LOOK_S, max(self._limit_s / LOOKS, events.LOOK_S))
        self._ends_job = launch.request.on_hang == flags.KILL
        self._changed_at: dict[str, float] = {}  # by file that a worker writes by itself
        self._stopped: dict[int, int] = {}  # pids of workers, by rank
        self._stopped_at = self._since = machine.running_s()
        self._reason = ""  # why no hang is looked for, last
        self.roll_call = stacks.RollCall(
            self._loop, self._output, launch.scratch, self._on_roll_called, supervisor.note
        )

    def began(self, workers: Sequence[launches.Worker], _: Mapping[int, Running], /) -> None:
        streams = (route for worker in workers for route in worker.routes)
        paths = (route.file for route in streams if route.file and route.is_redirected)
        self._changed_at = dict.fromkeys(paths, 0.0)
        self.resumed()

    def resumed(self) -> None:
        """Start the silence again: earlier times do not count."""
        self._since = self._stopped_at = machine.running_s()
        self._schedule_look(0.0)

    def _schedule_look(self, silent_s: float) -> None:
        """Look at the workers again, before they can have been silent for too long."""
        after_s = min(self._look_s, self._limit_s - silent_s) if self._limit_s else None
        self._loop.alarm(self._listen, after_s, look_s=self._look_s)

    def ran(self) -> None:
        self._loop.alarm(self._listen, None)
        self.roll_call.cancel()

    def stacks_wanted(self, ranks: Iterable[tuple[launches.Worker, int]], heading: str) -> None:
        self.roll_call.call(ranks, heading)

    def _on_roll_called(self) -> None:
        self._supervisor.stacks_shown(None)

    def _listen(self) -> None:
        silent_s = self._silent_s()
        if silent_s < self._limit_s:
            self._schedule_look(silent_s)
        else:
            self.resumed()
            self._supervisor.rules.silent()

    def _silent_s(self) -> float:
        """Look at the workers; the result is for how long none has written, though all could."""
        now, before, self._stopped = machine.running_s(), self._stopped, self._supervisor.stopped()
        debugged = {}
        if self._ends_job:
            pids = self._supervisor.pids()
            debugged = {rank: pid for rank, pid in pids.items() if proc.is_stopped_by_debugger(pid)}
        if debugged:
            self._print_reason(debugged, "is held by a debugger")
        elif self._stopped and self._stopped == before and not self._ends_job:
            listed = " ".join(map(str, self._stopped.values()))
            self._print_reason(self._stopped, f"is stopped; run kill -CONT {listed}")
        if debugged or self._stopped != before:
            self._since = self._stopped_at = now
        elif self._stopped and self._ends_job:
            return now - self._stopped_at
        if self._stopped or self._output.is_blocked or self._has_file_changed():
            self._since = now
        return min(now - self._since, self._output.silent_s)

    def _print_reason(self, ranks: Mapping[int, int], why: str) -> None:
        named = ", ".join(f"rank {rank} (pid {pid})" for rank, pid in ranks.items())
        words = f"no hang is looked for while {named} {why}"
        if words != self._reason:
            self._output.say([words])
        self._reason = words

    def _has_file_changed(self) -> bool:
        """Whether a worker has written to a file by itself since the last look."""
        before = self._changed_at.copy()
        for path in before:
            with suppress(OSError):
                self._changed_at[path] = machine.stat(path).st_mtime
        return self._changed_at != before
