#!/bin/bash
# The environment is copied to each node once, as one file, and ranks import from there: `import
# torch` looks up thousands of files, in each rank, and a shared file system of thousands of ranks
# is slow to answer. Worth it from some hundred ranks on. The Python that a venv was made from stays
# where it is; conda-pack includes it.
# Differs from tasks.sh: the environment is the first argument, and the lines around srun.
#
#     tar -cf env.tar -C ~/venv .              once; of conda: conda-pack --format tar -o env.tar
#     sbatch bcast.sh env.tar train.py --lr 3e-4

#SBATCH --job-name=train
#SBATCH --output=%x-%j.log
#SBATCH --time=01:00:00
#SBATCH --nodes=2
#SBATCH --exclusive
#SBATCH --gpus-per-node=4
#SBATCH --ntasks-per-node=4  # as many as GPUs

set -euo pipefail
environment=$1
shift
place=/tmp/environment-$SLURM_JOB_ID # on a disk of the node's, or in its memory: /dev/shm

on_each_node() {
    srun --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 "$@"
}

trap 'on_each_node rm -rf "$place" "$place.tar"' EXIT
sbcast --force "$environment" "$place.tar"
on_each_node sh -c "mkdir -p $place && tar -xf $place.tar -C $place"

export SLURM_KILL_BAD_EXIT=1
PATH=$place/bin:$PATH
srun --cpu-bind=none python -m spawnlaunch "$@"
