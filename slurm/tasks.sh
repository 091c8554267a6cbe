#!/bin/bash
# One task per rank: each task runs spawnlaunch, which derives the task's rank, pins the task to the
# CPUs next to its device, and then becomes your script: the least between Slurm and it.
#
#     sbatch tasks.sh train.py --lr 3e-4     a script of yours; flags of spawnlaunch may come first
#     sbatch tasks.sh -- --steps 100         the bundled training loop

#SBATCH --job-name=train
#SBATCH --output=%x-%j.log
#SBATCH --time=01:00:00
#SBATCH --nodes=2
#SBATCH --exclusive
#SBATCH --gpus-per-node=4
#SBATCH --ntasks-per-node=4  # as many as GPUs

# What makes `python` the one that has spawnlaunch: module load, conda activate, or
# source ~/venv/bin/activate

export SLURM_KILL_BAD_EXIT=1 # as srun --kill-on-bad-exit=1: a rank that fails ends the others

# Without masks from Slurm a rank may sit anywhere in the job, so spawnlaunch decides where.
srun --cpu-bind=none python -m spawnlaunch "$@"
