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
}
