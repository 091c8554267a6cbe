"""What is pinning worth here: the same work under several bindings, and which is best.

    python -m spawnlaunch.bench                                  all workloads, on this machine
    srun --kill-on-bad-exit=1 --cpu-bind=none -N2 --ntasks-per-node=8 python -m spawnlaunch.bench
    python -m spawnlaunch.bench -- python train.py               a command of yours

From the flags to the advice, each file having one subject:

    bench_request   the command line (command_line), with arms that are flags (own_arms) or other
                    launchers (launcher_arms)
    bench_rank      a rank joins the others (rank_group), agrees with them on the arms (agree,
                    arms), and walks the rounds
    rounds          a sample of each arm: a fresh process per rank (take, forked_sample), which runs
                    a workload (workloads) or the user's command; and what that cost (effort)
    samples_file    each sample, written before the next one is taken
    results         all samples, in memory or from that file; what it says of the nodes (describe)
    stats           one arm against another: ratio, interval, verdict
    recommendation  what to type
    bench_page, plot, scaling, stragglers    what a person sees
"""
