#!/bin/bash
# Every rank in a container. It holds Python, torch and spawnlaunch, and nothing of Slurm: the
# ranks know their places from the environment.
# Differs from tasks.sh: the image, and apptainer (or singularity) after srun.
# Not run on a cluster with Apptainer by this project; its tests run it with a stand-in for it.
#
#     sbatch container.sh train.py --lr 3e-4

#SBATCH --job-name=train
#SBATCH --output=%x-%j.log
#SBATCH --time=01:00:00
#SBATCH --nodes=2
#SBATCH --exclusive
#SBATCH --gpus-per-node=4
#SBATCH --ntasks-per-node=4  # as many as GPUs

image=pytorch.sif
gpus=--nv # --rocm for AMD

export SLURM_KILL_BAD_EXIT=1

srun --cpu-bind=none apptainer exec "$gpus" "$image" python -m spawnlaunch "$@"
