#!/bin/bash
# One launcher per node: each starts the workers of its node and watches them. Each line
# of output begins with its rank, tracebacks come last, and --tee, --preload and --result work.
# Begin with this batch script.
# Differs from tasks.sh:
# - one task per node, and --nproc.
# - no SLURM_KILL_BAD_EXIT: the launchers end together by themselves. Slurm could end them before
#   that, and srun's status would be 143 in place of the rank's.
# A script that reads SLURM_PROCID and the like gets a rank's values, as under tasks.sh.
#
#     sbatch nodes.sh train.py --lr 3e-4
#     sbatch nodes.sh --nproc 2 -- --steps 100     the last --nproc counts

#SBATCH --job-name=train
#SBATCH --output=%x-%j.log
#SBATCH --time=01:00:00
#SBATCH --nodes=2
#SBATCH --exclusive
#SBATCH --gpus-per-node=4
#SBATCH --ntasks-per-node=1

# What makes `python` the one that has spawnlaunch: module load, conda activate, or
# source ~/venv/bin/activate

srun --cpu-bind=none python -m spawnlaunch --nproc gpu "$@"
