#!/bin/bash
# Alps, nodes with four GH200, each with 72 cores of its own.
# Differs from tasks.sh: the environment of CSCS's container engine, which is given to srun.
# Checked with shellcheck, and with --explain on a node made from its published table; not run on
# Alps.
# Source: docs.cscs.ch, software/ml/pytorch and running/slurm.

#SBATCH --job-name=train
#SBATCH --output=%x-%j.log
#SBATCH --account=ACCOUNT
#SBATCH --time=01:00:00
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4

environment=$PWD/pytorch.toml # names the image; spawnlaunch is in the image, or in a venv below
ulimit -c 0                   # no core files of a hundred gigabytes

export SLURM_KILL_BAD_EXIT=1

srun --cpu-bind=none --environment="$environment" python -m spawnlaunch "$@"
