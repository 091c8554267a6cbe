#!/bin/bash
# Which binding is best on these nodes: runs the same work under several, in turns, and prints the
# flags to use. It writes bench-JOBID.jsonl as it goes, which `python -m spawnlaunch.bench --show`
# prints again. A job that was ended early leaves that file.
# Differs from tasks.sh: the bench runs in place of a script, and needs the nodes for itself.
#
#     sbatch bench.sh                        the bundled workloads
#     sbatch bench.sh -- python train.py     a command of yours

#SBATCH --job-name=bench
#SBATCH --output=%x-%j.log
#SBATCH --time=01:00:00
#SBATCH --nodes=2
#SBATCH --exclusive
#SBATCH --gpus-per-node=4
#SBATCH --ntasks-per-node=4  # as many as GPUs

# What makes `python` the one that has spawnlaunch: module load, conda activate, or
# source ~/venv/bin/activate

export SLURM_KILL_BAD_EXIT=1

result="bench-$SLURM_JOB_ID.jsonl"
srun --cpu-bind=none python -m spawnlaunch.bench --budget 20m --json "$result" "$@" || exit

# Nothing where the default is best, and status 3 where that is undecided. A script that goes on with
# training has these two lines; --pick train is for that workload alone.
flags=$(python -m spawnlaunch.bench --show "$result" --pick) || echo "keep the default until decided"
echo "srun --kill-on-bad-exit=1 --cpu-bind=none python -m spawnlaunch $flags train.py"
