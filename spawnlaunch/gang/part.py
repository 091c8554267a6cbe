"""One launcher's part in a gang, in its event loop: the member's rules, and its link to the hub.

The launcher does what a `Launcher` can, and tells `happened` what becomes of its workers and of
itself. So the gang knows nothing of processes.
"""

from __future__ import annotations

import time

from spawnlaunch.gang import member as rules
from spawnlaunch.gang import member_records as records
from spawnlaunch.gang.link import Link
from spawnlaunch.reading import file_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from spawnlaunch.gang.link import Endpoint
    from spawnlaunch.gang.member_records import Action, Event
    from spawnlaunch.gang.messages import Cause, Hello, Start
    from spawnlaunch.gang.stream import Loop

    class Launcher(Protocol):
        """What a launcher does for the gang."""

        def launch(self, start: Start) -> None: ...
        def halt(self, _: Cause, grace_s: float) -> None: ...
        def show_stacks(self) -> None: ...
        def note(self, kind: str, about: tuple[str, ...]) -> None: ...
        def exit(self, status: int, cause: Cause | None) -> None: ...


class Part:
    """A member, and the connection that it wants."""

    def __init__(
        self, loop: Loop, endpoint: Endpoint, hello: Hello, join_s: float, launcher: Launcher
    ) -> None:
        self._loop, self._launcher = loop, launcher
        self._link = Link(loop, endpoint, self.happened)
        boot = hello.boot or (file_text("/proc/sys/kernel/random/boot_id") or "").strip()
        self.member = records.Member(hello._replace(boot=boot), join_s)

    def begin(self) -> None:
        """Seek the hub: the launcher is ready for workers."""
        self.happened(records.Tick())

    def happened(self, event: Event) -> None:
        """Decide about an event, and act."""
        self.member, actions = rules.step(self.member, event, time.monotonic())
        for action in actions:
            self._act(action)
        is_over = self.member.state == records.ENDED
        due_s = None if is_over else rules.due(self.member, time.monotonic())
        self._loop.alarm(self._tick, due_s)

    def _tick(self) -> None:
        self.happened(records.Tick())

    def _act(self, action: Action) -> None:
        match action:
            case records.Connect():
                self._link.connect()
            case records.Disconnect():
                self._link.close()
            case records.Say(message):
                self._link.say(message)
            case records.Note(kind, about):
                self._launcher.note(kind, about)
            case _:
                self._act_here(action)

    def _act_here(self, action: Action) -> None:
        match action:
            case records.Launch(start):
                self._launcher.launch(start)
            case records.Halt(cause, grace_s):
                self._launcher.halt(cause, grace_s)
            case records.ShowStacks():
                self._launcher.show_stacks()
            case records.Exit(status, cause):
                self._launcher.exit(status, cause)
