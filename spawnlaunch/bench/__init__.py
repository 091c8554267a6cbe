"""What is pinning worth here: the same work under several bindings, and which is best.

    python -m spawnlaunch.bench                                  all workloads, on this machine
    srun -N2 --ntasks-per-node=8 python -m spawnlaunch.bench     on two nodes
    python -m spawnlaunch.bench -- python train.py               a command of yours

From the flags to the advice, each file having one subject:

    flags    ──> BenchRequest  what was asked for
    rounds   ──> every rank joins the others (rank_group), agrees with them on the arms (agree,
                 arms) and walks the rounds: a sample is a fresh process per rank (sample), which
                 runs a workload (workloads/) or the user's command
    result   ──> Result        everything measured: what --json writes, --show and --compare read
    stats    ──> Comparison    one arm against another: ratio, interval, verdict; pure
    advice, table, compare, plot   what a person sees
"""
