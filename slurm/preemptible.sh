#!/bin/bash
# A job that may be interrupted at any time, and goes on with the same losses, bit for bit: two
# minutes before its time is over, or when it is preempted, the training loop saves and ends with
# status 75, and the job goes back into the queue under the same id.
# Differs from tasks.sh: --signal, --requeue, --open-mode, --resume auto, and what follows srun.
#
#     sbatch preemptible.sh --steps 100000     flags of the bundled training loop
#
# A script of yours can take its place if it does as much: save on SIGUSR1 and on SIGTERM (which
# preemption sends), ignore SIGTERM from then on (the first rank that ends makes Slurm send it to
# the others), end with 75, and begin with what it has saved. The page on batch scripts
# (slurm/README.md) has one, resumable.py. The line of srun is then:
#     srun --cpu-bind=none python -m spawnlaunch "$@"
#
# In a job array (#SBATCH --array=0-3) the task that was interrupted alone goes back into the queue.

#SBATCH --job-name=train
#SBATCH --output=%x-%j.log
#SBATCH --open-mode=append   # one log for all attempts
#SBATCH --signal=USR1@120    # to the ranks, so many seconds before the end
#SBATCH --requeue
#SBATCH --time=01:00:00
#SBATCH --nodes=2
#SBATCH --exclusive
#SBATCH --gpus-per-node=4
#SBATCH --ntasks-per-node=4  # as many as GPUs

# What makes `python` the one that has spawnlaunch: module load, conda activate, or
# source ~/venv/bin/activate

most_restarts=1000

export SLURM_KILL_BAD_EXIT=1

srun --cpu-bind=none python -m spawnlaunch -- --out "runs/$SLURM_JOB_ID" --resume auto "$@"
status=$?
if [ "$status" -eq 75 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt "$most_restarts" ]; then
    job=$SLURM_JOB_ID
    # The last task of an array has the whole array's number.
    [ "$job" = "${SLURM_ARRAY_JOB_ID:-}" ] && job=${job}_$SLURM_ARRAY_TASK_ID
    scontrol requeue "$job"
fi
exit "$status"
