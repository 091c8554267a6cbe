"""A simulated machine: launcher and guard run in it as they are, in any order of events.

`kernel` has time, processes and signals, `descriptors` what a descriptor may lead to, `procfs` what
is shown below /proc, and `door` puts them in the place of `spawnlaunch.machine`.
"""
