"""Help for a job that hangs: notice that no rank writes anything, and tell where the workers are.

The way of a hang: HangHelp._listen -> Decisions.silent -> Supervisor.announce (the line) and
tell_stacks -> RollCall.tell -> one process after the other: _ask or _look -> _note -> _call_roll
(the lines) -> _hear_records -> Supervisor.stacks_told -> Decisions.stacks_told, which ends the
launch with --on-hang kill.

What comes through our pipes is heard at once; of a worker that writes to a file by itself, the
file's time of change is looked at when the others have been silent. (A clock that is set meanwhile
can make that silence seem longer or shorter, once.) When workers wait for a reader who does not
read what they said, it is not they who are silent; nor where one of them is stopped, as the others
may wait for it.
"""

from __future__ import annotations

from spawnlaunch import machine
from spawnlaunch.run.hang import stacks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Protocol

    from spawnlaunch.run import decisions, events, launches
    from spawnlaunch.run.journal import Journal
    from spawnlaunch.run.output import Output

    class Owner(Protocol):
        """Whose workers they are."""

        launch: launches.Launch
        loop: events.Loop
        output: Output
        journal: Journal | None  # of --record
        rules: decisions.Decisions

        def stacks_told(self) -> None: ...
        def stopped(self) -> Mapping[int, int]: ...


class HangHelp:
    """What --hang-timeout and --stack-on-usr2 ask for; the limit is of silence, 0: never."""

    def __init__(self, supervisor: Owner) -> None:
        self._supervisor, launch = supervisor, supervisor.launch
        self._loop, self._output = supervisor.loop, supervisor.output
        self._limit_s = launch.request.hang_timeout_s
        self._files: list[str] = []
        self._since, self._lost_s = machine.running_s(), 0.0
        self._said = ""  # of stopped workers, last
        self.stacks = stacks.RollCall(
            self._loop, self._output, launch.scratch, supervisor.stacks_told, supervisor.journal
        )

    def begin(self, workers: Sequence[launches.Worker]) -> None:
        """Listen to these workers, who have just been started."""
        streams = (route for worker in workers for route in worker.routes)
        self._files = [route.file for route in streams if route.file and route.is_redirected]
        self.begin_anew()

    def begin_anew(self) -> None:
        """Nothing before this moment counts: workers have been started, or were stopped."""
        self._since = machine.running_s()
        self._loop.alarm(self._listen, self._limit_s or None)

    def cancel(self) -> None:
        """All workers have ended."""
        self._loop.alarm(self._listen, None)
        self.stacks.cancel()

    def _listen(self) -> None:
        quiet_s = self._quiet_s()
        if quiet_s < self._limit_s:
            self._loop.alarm(self._listen, self._limit_s - quiet_s)
        else:
            self.begin_anew()
            self._supervisor.rules.silent()

    def _quiet_s(self) -> float:
        stopped = self._supervisor.stopped()
        if stopped:
            who = ", ".join(f"rank {rank} (pid {pid})" for rank, pid in stopped.items())
            pids = " ".join(map(str, stopped.values()))
            words = f"no hang is looked for while {who} is stopped; type kill -CONT {pids}"
            if words != self._said:
                self._output.say([words])
            self._said = words
        if stopped or self._output.is_held_up:
            return 0.0
        self._look_at_files()
        return max(0.0, min(machine.running_s() - self._since, self._output.silent_s))

    def _look_at_files(self) -> None:
        """Take note of when one was written to. That was before any gap since the last look."""
        lost_s = machine.monotonic() - machine.running_s()
        gap_s, self._lost_s = lost_s - self._lost_s, lost_s
        for path in self._files:
            age_s = max(0.0, machine.time() - _changed(path) - gap_s)
            self._since = max(self._since, machine.running_s() - age_s)


def _changed(path: str) -> float:
    """When a file was written to last, in seconds since 1970."""
    try:
        return machine.stat(path).st_mtime
    except OSError:
        return 0.0
