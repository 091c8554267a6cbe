#!/bin/bash
# The same training with several seeds, each a job of its own with its own address and port, two
# of them at a time.
# Differs from tasks.sh: --array, and the seed and the directory that follow from its index.
#
#     sbatch array.sh --steps 1000     flags of the bundled training loop

#SBATCH --job-name=seeds
#SBATCH --array=0-3%2
#SBATCH --output=%x-%A-%a.log
#SBATCH --time=01:00:00
#SBATCH --nodes=1
#SBATCH --exclusive
#SBATCH --gpus-per-node=4
#SBATCH --ntasks-per-node=4  # as many as GPUs

# What makes `python` the one that has spawnlaunch: module load, conda activate, or
# source ~/venv/bin/activate

export SLURM_KILL_BAD_EXIT=1

srun --cpu-bind=none python -m spawnlaunch -- \
    --seed "$SLURM_ARRAY_TASK_ID" \
    --out "runs/$SLURM_ARRAY_JOB_ID/seed-$SLURM_ARRAY_TASK_ID" "$@"
