#!/bin/bash
# LUMI-G, nodes with four MI250X, which are eight devices. The device with index 0 sits next to the
# cores 48 to 55; spawnlaunch finds that in /sys, so no mask has to be written down.
# Differs from container.sh: the partition, the interfaces, and the cache of MIOpen.
# Checked with shellcheck, and with --explain on files made from LUMI's tables; not run on LUMI.
# Sources: Lumi-supercomputer/LUMI-AI-Guide, 05-multi-gpu-and-node; docs.lumi-supercomputer.eu,
# runjobs/scheduled-jobs/distribution-binding.

#SBATCH --job-name=train
#SBATCH --output=%x-%j.log
#SBATCH --account=project_465000000
#SBATCH --partition=standard-g
#SBATCH --time=01:00:00
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=7    # of every 8 cores the first is the system's
#SBATCH --mem-per-gpu=60G

image=$HOME/pytorch-rocm.sif
module purge
module use /appl/local/laifs/modules
module load lumi-aif-singularity-bindings

export SLURM_KILL_BAD_EXIT=1
export NCCL_SOCKET_IFNAME=hsn0,hsn1,hsn2,hsn3

# MIOpen locks its files, which Lustre does not like: a cache in the memory of each node.
export MIOPEN_USER_DB_PATH=/tmp/miopen-$USER-$SLURM_JOB_ID
export MIOPEN_CUSTOM_CACHE_DIR=$MIOPEN_USER_DB_PATH
srun --ntasks-per-node=1 --ntasks="$SLURM_NNODES" mkdir -p "$MIOPEN_USER_DB_PATH"

# The first core of each L3 group is left out by Slurm; repeated for a node where it is not.
srun --cpu-bind=none singularity exec "$image" \
    python -m spawnlaunch --reserve-cpus first-per-l3 --smt off "$@"
