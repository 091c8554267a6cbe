"""A worker program: every rank reports what it really got, and rank 0 says what is wrong with it.

    python -m spawnlaunch --nproc 8 -m spawnlaunch.check
    srun -n 16 python -m spawnlaunch.check
    torchrun --nproc-per-node 8 -m spawnlaunch.check
    srun -n 16 python -m spawnlaunch.check --all

It runs under any launcher. It imports torch, starts a DataLoader worker and a parallel computation,
and only then looks: a mask that was right at the start may have been lost by then. It compares the
ranks' software, their speed and their clocks, too. A fault is named with its ranks and with what to
type, and the exit status is 1; load, quotas and the like are noted, and are no fault.

With --all it measures more, before a long job: how fast devices, memories and all-reduces are, what
they reach, what room and which limits they have, and what of the site would stop a job of a
thousand nodes.
"""
