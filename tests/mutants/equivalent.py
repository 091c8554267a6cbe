"""Mutants that change nothing that anybody sees, and why. They are not tried.

A key is a file, a function and the change of it: it stays true where lines move.
"""

EQUIVALENT = {
    "spawnlaunch/binding/cores.py divide: 0 -> 1": "all sizes are larger by one: their order stays",
    "spawnlaunch/binding/cores.py _cuts: 0 -> 1 #2": "all prices are higher by one, also the other",
    "spawnlaunch/binding/cores.py _capped: 0 -> 1": "the first share begins at core 0, in both",
    "spawnlaunch/world/host.py module: 16 -> 17": "a name ends at its NUL, in the first 16 bytes",
    "spawnlaunch/world/host.py hold_port: dropped: probe.close()": "Python closes it at the return",
    "spawnlaunch/world/host.py hold_port: 1 -> 2": "a backlog of a socket that is closed at once",
    "spawnlaunch/run/ganged.py Gang.await_hub: 1 -> 2": "any number below 0 is a rank not known",
    "spawnlaunch/run/supervisor.py module: 1.0 -> 2.0": "when what may be needed is imported",
    "spawnlaunch/run/telling.py module: 1.0 -> 2.0": "when it is said that something takes long",
    "spawnlaunch/run/tree.py module: 0.5 -> 1.5": "how long an exec may take; others wait for less",
    "spawnlaunch/run/supervisor.py Supervisor._prompt: False -> True": "used of one worker only",
    "spawnlaunch/run/launcher.py _watch: machine.monotonic() + decisions.STOPPED_S -> "
    "machine.monotonic() - decisions.STOPPED_S": "a look that is near is a second later",
    "spawnlaunch/run/starting.py set_up_process: dropped: machine.close(file)": (
        "exec closes it, and --preload what is not the user's"
    ),
    "spawnlaunch/run/preload/__init__.py _be: 1 -> 2 #2": "it is asked whether there is anything",
    "spawnlaunch/run/preload/forked.py _forget_the_launcher: fd > 2 -> fd >= 2": (
        "stderr is among what was inherited"
    ),
    "spawnlaunch/run/preload/libraries.py seeded_since: torch.initial_seed() < LEAST_ENTROPY -> "
    "torch.initial_seed() <= LEAST_ENTROPY": "the limit is a guess; nobody seeds with 2**32",
    "spawnlaunch/run/hang/together.py module: False -> True": "begin_anew comes before any look",
    "spawnlaunch/run/files.py module: 0.02 -> 1.02": "how often it is looked for a reader",
    "spawnlaunch/run/lines.py module: 20 -> 21": "how much of a line without an end is kept",
    "spawnlaunch/run/output.py module: 32 -> 33 #2": "room for one descriptor more than are needed",
    "spawnlaunch/run/output.py module: 5 -> 6": "room for more descriptors than are needed",
    "spawnlaunch/run/report.py _memory_of: peak >= TELLING * limit -> peak > TELLING * limit": (
        "the limit is a guess, and of a byte"
    ),
    "spawnlaunch/run/report.py write_result: 1 -> 2": "the indent of JSON, which means nothing",
    "spawnlaunch/run/routes.py _others: rank + 1 -> rank - 1": "any rank of another task will do",
    "spawnlaunch/run/say.py module: 2.0 -> 3.0": "how long a reader of stderr is waited for",
    "spawnlaunch/gang/link.py Link.close: False -> True": (
        "a member that hears has ended, or connects: that drops it"
    ),
    "spawnlaunch/gang/member.py Member.__init__: 0.0 -> 1.0": (
        "it is set by `linked`, before it is read"
    ),
    "spawnlaunch/gang/phases.py module: 30.0 -> 31.0 #2": (
        "how long some may be on their way is a guess"
    ),
    "spawnlaunch/gang/phases.py Phases._safe_at: 0.0 -> 1.0": (
        "the first second of the machine's clock is over, too"
    ),
    "spawnlaunch/gang/server.py Server._pause: 0 -> 1": (
        "for types: it is called with an error that has a number"
    ),
    "spawnlaunch/gang/stream.py Ended.__init__: dropped: super().__init__(why)": (
        "BaseException keeps the one positional argument by itself"
    ),
    "spawnlaunch/gang/stream.py Connection.say: 0 -> 1": (
        "descriptor 0 is standard input, which is never closed"
    ),
    "spawnlaunch/gang/token.py find: 1 -> 2": "a file that is too long has more than either number",
    "spawnlaunch/gang/stream.py Connection._end: not end.certain and (not self.wire.is_ready) -> "
    "not end.certain or not self.wire.is_ready": (
        "it is closed some seconds later at most, and not heard meanwhile"
    ),
    "spawnlaunch/gang/stream.py Connection._read: 16 -> 17": "how much is heard in one turn",
    "spawnlaunch/gang/stream.py Connection._flush: dropped: self.waiting.clear()": (
        "sending fails again in the next turn, which reads why and ends it"
    ),
    "spawnlaunch/binding/cores.py _owned: max(map(len, by_groups), default=0) > 1 -> "
    "max(map(len, by_groups), default=0) >= 1": "where no core is claimed twice none is given away",
    "spawnlaunch/binding/picture.py module: 34 -> 35": "a colour, which repeats what letters say",
}
