"""A worker program: every rank reports what it really got, and rank 0 says what is wrong with it.

    python -m spawnlaunch --nproc 8 -m spawnlaunch.check
    srun -n 16 python -m spawnlaunch.check
    torchrun --nproc-per-node 8 -m spawnlaunch.check
    srun -n 16 python -m spawnlaunch.check --all

It runs under any launcher. It imports torch, starts a DataLoader worker and a parallel computation,
and only then looks: a mask that was right at the start may have been lost by then.

With --all it measures as well, before a long job: whether software is the same on all ranks, how
fast their devices, memories and all-reduces are, what they reach, and what room they have.
"""
