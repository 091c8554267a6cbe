"""What is pinning worth here: the same work under several bindings, and which is best.

    python -m spawnlaunch.bench                                  all workloads, on this machine
    srun --kill-on-bad-exit=1 --cpu-bind=none -N2 --ntasks-per-node=8 python -m spawnlaunch.bench
    python -m spawnlaunch.bench -- python train.py               a command of yours

From the flags to the advice, each file having one subject:

    flags    ──> BenchRequest  what was asked for; own_arms reads arms that are flags, launchers are
                 arms of another kind
    run      ──> every rank joins the others (rank_group), agrees with them on the arms (agree,
                 arms), and walks the rounds
    rounds   ──> Taken         a sample: a fresh process per rank (take, sample), which runs a
                 workload (workloads/) or the user's command, and what that cost (effort); it is in
                 the file (record) before the next one is taken
    budget   ──> Cost          by the first rounds, what is kept and what can be decided
    results  ──> Result        all samples, in memory or from the file of a bench
    stats    ──> Comparison    one arm against another: ratio, interval, verdict; pure
    why, scaling, advice, table, compare, plot, forest   what a person sees; export: a program
"""
