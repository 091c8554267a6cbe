"""Measure what pinning is worth here: the same work under several bindings.

    python -m spawnlaunch.bench                                  all workloads, on this machine
    srun --kill-on-bad-exit=1 --cpu-bind=none -N2 --ntasks-per-node=8 python -m spawnlaunch.bench
    python -m spawnlaunch.bench -- python train.py               a command of yours

From the flags to the advice, each file having one subject:

    bench_request ──> BenchRequest  the command line (command_line); own_arms reads arms that are
                      flags, launcher_arms has launchers as arms
    bench_rank    ──> every rank joins the others (rank_group), agrees with them on the arms (agree,
                      arms), and runs the rounds
    rounds        ──> Taken         a sample: a fresh process per rank (take, forked_sample), which
                      runs a workload (workloads/) or the user's command, and its effort (effort);
                      it is in the file (samples_file) before the next one is taken
    results       ──> Result        all samples, in memory or from the file of a bench
    stats         ──> Comparison    one arm with another: ratio, interval, verdict; pure
    recommendation, bench_page, scaling, stragglers, plot    the advice, the page and the picture
"""
