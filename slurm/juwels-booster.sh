#!/bin/bash
# JUWELS Booster, nodes with four A100: these are on the NUMA domains 3, 1, 7 and 5 of eight;
# spawnlaunch finds that in /sys.
# Differs from tasks.sh: --master-suffix i, because a node's address in the InfiniBand network has
# the node's name followed by an i.
# Checked with shellcheck, and with --explain on a node made from its published table; not run on
# JUWELS.
# Sources: scripts of users that interTwin-eu/itwinai keeps (src/itwinai/slurm); pytorch issue 73656;
# of the site's own courses https://github.com/HelmholtzAI-FZJ/2023-getting-started-with-ai-on-
# supercomputers, code/parallelize/run_multi_gpu.sh, for CUDA_VISIBLE_DEVICES.

#SBATCH --job-name=train
#SBATCH --output=%x-%j.log
#SBATCH --account=ACCOUNT
#SBATCH --partition=booster  # develbooster for tries
#SBATCH --time=01:00:00
#SBATCH --nodes=2
#SBATCH --gres=gpu:4
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=24   # hardware threads

environment=$HOME/venv
export PATH=$environment/bin:$PATH

export SLURM_KILL_BAD_EXIT=1
export NCCL_SOCKET_IFNAME=ib0 GLOO_SOCKET_IFNAME=ib0
export CUDA_VISIBLE_DEVICES=0,1,2,3 # or a task may not see them all

srun --cpu-bind=none python -m spawnlaunch --master-suffix i "$@"
