"""The files of a small Slurm: four nodes with eight stand-in GPUs each, on a network of their own.

Everything lies in /run, which inside the cluster is an empty file system of its own. Sources:
slurm.conf(5), gres.conf(5).
"""

from typing import NamedTuple

HEAD = "login"  # where slurmctld runs and where srun, sbatch and salloc are typed
NODES = ("node0", "node1", "node2", "node3")
ADDRESSES = {HEAD: "10.11.12.1", **{node: f"10.11.12.{10 + i}" for i, node in enumerate(NODES)}}
PREFIX_BITS = 24

CONF = "/run/slurm/slurm.conf"
GRES_CONF = "/run/slurm/gres.conf"
HOSTS = "/run/slurm/hosts"
LOGS = "/run/slurm/log"
JOBS = "/run/slurm/jobs"  # outputs of batch jobs


class Shape(NamedTuple):
    """What the nodes claim to be, and how Slurm treats tasks on them."""

    cpus: int  # of each node; more than the machine has is accepted (config_overrides)
    task_plugin: str  # "task/none", or "task/affinity" where cpus is what the machine really has
    extra: str  # further lines of slurm.conf


def files(shape: Shape) -> dict[str, str]:
    """Path to text. Slurm wants files of GPU devices: eight terminals stand in for them."""
    names = "".join(f"{address} {name}\n" for name, address in ADDRESSES.items())
    return {
        CONF: slurm_conf(shape),
        GRES_CONF: "Name=gpu File=/dev/tty[0-7]\n",
        HOSTS: f"127.0.0.1 localhost\n{names}",
    }


def slurm_conf(shape: Shape) -> str:
    """Heterogeneous jobs are started by the backfill scheduler alone, hence its short interval."""
    return f"""\
ClusterName=test
SlurmctldHost={HEAD}
SlurmUser=root
AuthType=auth/munge
StateSaveLocation=/run/slurm/state
SlurmdSpoolDir=/run/slurm/spool-%n
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd-%n.pid
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin={shape.task_plugin}
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_min_interval=0,batch_sched_delay=0
ReturnToService=2
KillWait=5
InactiveLimit=0
GresTypes=gpu
NodeName={",".join(NODES)} CPUs={shape.cpus} RealMemory=4000 Gres=gpu:8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
{shape.extra}
"""
