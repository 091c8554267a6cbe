"""A simulated machine: launcher and guard run in it as they are, in any order of events.

`kernel` has the clock and the scheduler, `node` and `process` who runs and what signals do to them,
`descriptors` and `network` what a descriptor may lead to, `procfs` what is shown below /proc, and
`door` puts them in the place of `spawnlaunch.base.machine`.
"""
