#!/bin/bash
# Perlmutter, nodes with four A100: these are numbered against the order of the NUMA domains;
# spawnlaunch finds that in /sys.
# Differs from tasks.sh: the constraint, and the image with NCCL's plugin for Slingshot.
# Checked with shellcheck, and with --explain on a node made from its published table; not run on
# Perlmutter.
# Source: docs.nersc.gov, machinelearning/launchers.

#SBATCH --job-name=train
#SBATCH --output=%x-%j.log
#SBATCH --account=m0000
#SBATCH --constraint=gpu
#SBATCH --qos=regular
#SBATCH --time=01:00:00
#SBATCH --nodes=2
#SBATCH --gpus-per-node=4
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=32   # hardware threads
#SBATCH --image=nersc/pytorch:25.02.01
#SBATCH --module=gpu,nccl-plugin

export SLURM_KILL_BAD_EXIT=1

# Shifter runs the image that was named above; spawnlaunch is in the home directory (pip install
# --user within the image).
srun --cpu-bind=none shifter python -m spawnlaunch "$@"
