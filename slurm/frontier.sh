#!/bin/bash
# Frontier, the nodes of LUMI-G with the modules of OLCF.
# Differs from lumi.sh: no container, and RCCL's plugin for Slingshot.
# Checked with shellcheck, and with --explain on a copy of such a node's /sys; not run on Frontier.
# Sources: https://docs.olcf.ornl.gov/software/analytics/pytorch_frontier.html, its batch script for
# torch 2.10 with ROCm 7.1.1, and https://docs.olcf.ornl.gov/systems/frontier_user_guide.html.

#SBATCH --job-name=train
#SBATCH --output=%x-%j.log
#SBATCH --account=PROJECT_ID
#SBATCH --partition=batch
#SBATCH --time=01:00:00
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=7    # of every 8 cores the first is the system's
#SBATCH --network=disable_rdzv_get # for FI_CXI_RDZV_PROTO=alt_read, which rccl-net-plugin sets

environment=/path/to/my_env
module load PrgEnv-gnu/8.7.0 cpe/26.03 miniforge3/23.11.0-0
module load rocm/7.1.1 rccl-net-plugin craype-accel-amd-gfx90a
export LD_LIBRARY_PATH=$CRAY_LD_LIBRARY_PATH:$LD_LIBRARY_PATH # as this cpe is not the default one
export PATH=$environment/bin:$PATH

export SLURM_KILL_BAD_EXIT=1
export NCCL_SOCKET_IFNAME=hsn0,hsn1,hsn2,hsn3 # OLCF: where it hangs, try hsn0 alone

# MIOpen's cache in the memory of each node.
export MIOPEN_USER_DB_PATH=/tmp/miopen-$USER-$SLURM_JOB_ID
export MIOPEN_CUSTOM_CACHE_DIR=$MIOPEN_USER_DB_PATH
srun --ntasks-per-node=1 --ntasks="$SLURM_NNODES" mkdir -p "$MIOPEN_USER_DB_PATH"

srun --cpu-bind=none python -m spawnlaunch --reserve-cpus first-per-l3 --smt off "$@"
