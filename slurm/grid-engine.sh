#!/bin/bash
# Grid Engine, one node with four GPUs: no srun, so spawnlaunch starts the four workers itself.
# Differs from the Slurm scripts: the directives, and --nproc as in `torchrun --nproc_per_node 4`.
# Not submitted to a Grid Engine by this project; its tests run it with the variables of one.
#
#     qsub grid-engine.sh training-seq2seq.py --model_name_or_path="openai/whisper-medium" --do_train

#$ -S /bin/bash
#$ -N train
#$ -cwd
#$ -j y
#$ -o train.log
#$ -pe mthread 4
#$ -l gpu,gpu_arch=L40S

# What makes `python` the one that has spawnlaunch, and finds the GPUs:
# module load nvidia
# export PATH=$HOME/mambaforge/envs/my-env/bin:$PATH

python -m spawnlaunch --nproc 4 "$@"
