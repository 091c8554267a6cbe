"""Mutants that change nothing that anybody sees, and why. They are not tried.

A key is a file, a function and the change of it: it stays true where lines move.
"""

EQUIVALENT = {
    "spawnlaunch/binding/cores.py divide: 0 -> 1": "all sizes are larger by one: their order stays",
    "spawnlaunch/binding/cores.py _cuts: 0 -> 1 #2": "all prices are higher by one, also the other",
    "spawnlaunch/binding/cores.py _capped: 0 -> 1": "the first share begins at core 0, in both",
    "spawnlaunch/world/host.py module: 16 -> 17": "a name ends at its NUL, in the first 16 bytes",
    "spawnlaunch/world/host.py hold_free_port: seed + i -> seed - i": "any order of ports will do",
    "spawnlaunch/world/host.py hold_port: dropped: probe.close()": "Python closes it at the return",
    "spawnlaunch/world/host.py hold_port: 1 -> 2": "a backlog of a socket that is closed at once",
    "spawnlaunch/gang/link.py Link._looked_up: 0 -> 1": "any number but ECONNREFUSED",
    "spawnlaunch/gang/link.py Link.close: False -> True": (
        "a member that hears has ended, or connects: that drops it"
    ),
    "spawnlaunch/gang/member.py Member.__init__: 0.0 -> 1.0": (
        "it is set by `linked`, before it is read"
    ),
    "spawnlaunch/gang/phases.py module: 30.0 -> 31.0 #2": (
        "how long some may be on their way is a guess"
    ),
    "spawnlaunch/gang/phases.py Phases._free: 0.0 -> 1.0": (
        "the first second of the machine's clock is over, too"
    ),
    "spawnlaunch/gang/server.py Server._pause: 0 -> 1": (
        "for types: it is called with an error that has a number"
    ),
    "spawnlaunch/gang/stream.py End.__init__: dropped: super().__init__(why)": (
        "BaseException keeps the one positional argument by itself"
    ),
    "spawnlaunch/gang/stream.py Stream.say: 0 -> 1": (
        "descriptor 0 is standard input, which is never closed"
    ),
    "spawnlaunch/gang/token.py find: 1 -> 2": "a file that is too long has more than either number",
}
