#!/bin/bash
# A spare node replaces a lost one: it waits, with its imports done, until a node is lost.
# Differs from nodes.sh: a node more, --no-kill, --spares, --max-restarts, and no
# SLURM_KILL_BAD_EXIT. The launchers notice a lost node after --lost-after (10 s), and end as one by
# themselves; --no-kill keeps Slurm from ending the job, which it would do once it has noticed.
#
#     sbatch spares.sh train.py --lr 3e-4
#     sbatch spares.sh --preload torch train.py

#SBATCH --job-name=train
#SBATCH --output=%x-%j.log
#SBATCH --time=01:00:00
#SBATCH --nodes=3            # two work
#SBATCH --exclusive
#SBATCH --gpus-per-node=4
#SBATCH --ntasks-per-node=1
#SBATCH --no-kill

# What makes `python` the one that has spawnlaunch: module load, conda activate, or
# source ~/venv/bin/activate

result="result-$SLURM_JOB_ID.json"

srun --no-kill --cpu-bind=none python -m spawnlaunch --nproc gpu --spares 1 --max-restarts 3 \
    --result "$result" "$@"
status=$?
if [ -f "$result" ]; then # srun's status is bad where a node was lost; the launch's may be good
    status=$(python -c 'import json, sys; print(json.load(open(sys.argv[1]))["status"])' "$result")
fi
exit "$status"
