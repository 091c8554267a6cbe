"""What is pinning worth here: the same work under several bindings, and which is best.

    python -m spawnlaunch.bench                                  all workloads, on this machine
    srun -N2 --ntasks-per-node=8 python -m spawnlaunch.bench     on two nodes
    python -m spawnlaunch.bench -- python train.py               a command of yours

From the flags to the advice, each file having one subject:

    options ──> Options     what was asked for
    rank    ──> the ranks meet (meeting), each says where it is (place), they agree on the arms
                (arms, agree) and walk the rounds (rounds): a sample is a fresh process per rank
                (sample), which runs a workload (gang, workloads/) or the user's command (command)
    result  ──> Result      everything measured: what --json writes, --show and --compare read
    stats   ──> Comparison  one arm against another: ratio, interval, verdict; pure
    advice, table, plot     what a person sees
"""
