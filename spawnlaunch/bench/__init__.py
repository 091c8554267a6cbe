"""Measure what pinning is worth here: the same work under several bindings.

    spawnlaunch bench                     all workloads, on this machine
    spawnlaunch bench -- python train.py  a command of yours
    srun --kill-on-bad-exit=1 --cpu-bind=none -N2 --ntasks-per-node=8 spawnlaunch bench

From the flags to the advice, each file having one subject:

    bench_request   the command line (command_line), with its arms (arms)
    bench_rank      a rank (rank_on_node) joins the others (rank_group), agrees with them on the
                    arms (agree), and walks the rounds
    rounds          a sample of each arm: a fresh process per rank (forked_sample), which runs a
                    workload (workloads) or the user's command; and its effort (effort)
    results         all samples, each written to the file before the next one is taken
    stats           one arm against another: ratio, interval, verdict
    recommendation  the flags to use
    bench_page, plot, stragglers    the page and the picture
"""
