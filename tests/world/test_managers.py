"""Every manager from what it exports: environments as recorded or documented, one table each.

A case is the environment, what is typed, and what must come of it: the world with the source of
each value, or a refusal that ends in the flag to type.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.launching import LAUNCHER, REPORTER, clean_environ, explain, launch

HERE = os.uname().nodename
UNKNOWN = "not exported"
LAUNCH = " ".join(LAUNCHER)


class Found(NamedTuple):
    """What is derived: {question: (value, source)}, or {question: value}."""

    mode: str
    values: Mapping[str, Any]
    flags: str = ""


class Refused(NamedTuple):
    """Exit status 2, and what the one line says."""

    said: str
    flags: str = ""


class Case(NamedTuple):
    """`files` are written first; {files} in a variable is their directory."""

    name: str
    environ: Mapping[str, str]
    expected: Found | Refused
    files: Mapping[str, str] = {}


# Open MPI 4: recorded from mpirun 4.1.4 of Debian 12, rank 2 of `mpirun -n 4` on two nodes.
# Open MPI 5: openpmix src/mca/pmdl/ompi/pmdl_ompi.c and prrte src/mca/schizo.
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "OMPI_COMM_WORLD_NODE_RANK": "0",
    "PMIX_NAMESPACE": "732102657",
    "PMIX_RANK": "2",
}
OPEN_MPI_4 = {
    **OPEN_MPI,
    "OMPI_MCA_orte_num_nodes": "2",
    "OMPI_MCA_ess_base_jobid": "732102657",
    "OMPI_MCA_orte_hnp_uri": "732102656.0;tcp://192.0.2.2:49875",
}
OPEN_MPI_5 = {**OPEN_MPI, "PMIX_NAMESPACE": "prterun-login-4711@1", "PRTE_LAUNCHED": "1"}
OPEN_MPI_CASES = [
    Case(
        "version 4 on two nodes",
        OPEN_MPI_4,
        Found(
            "task",
            {
                "rank": (2, "OMPI_COMM_WORLD_RANK"),
                "world_size": (4, "OMPI_COMM_WORLD_SIZE"),
                "local_rank": (0, "OMPI_COMM_WORLD_LOCAL_RANK"),
                "local_world_size": (2, "OMPI_COMM_WORLD_LOCAL_SIZE"),
                "node_rank": (None, UNKNOWN),
                "nnodes": (2, "OMPI_MCA_orte_num_nodes"),
                "master_addr": ("node0", "--master-addr"),
                "run_id": ("732102657", "PMIX_NAMESPACE"),
            },
            "--master-addr node0",
        ),
    ),
    Case(
        "version 5 on two nodes",
        OPEN_MPI_5,
        Found(
            "task",
            {
                "rank": 2,
                "node_rank": (None, UNKNOWN),
                "nnodes": (None, UNKNOWN),
                "run_id": ("prterun-login-4711@1", "PMIX_NAMESPACE"),
            },
            "--master-addr node0",
        ),
    ),
    Case(
        "on one node",
        {**OPEN_MPI_5, "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "2"},
        Found(
            "task",
            {
                "local_rank": 2,
                "node_rank": (0, "all ranks are on this node"),
                "nnodes": 1,
                "master_addr": (HERE, "this host: all ranks are on it"),
            },
        ),
    ),
    Case("no host of rank 0", OPEN_MPI_4, Refused("type --master-addr HOST")),
    Case(
        "one launcher per node",
        {**OPEN_MPI_5, "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}
        | {"OMPI_COMM_WORLD_LOCAL_SIZE": "1"},
        Found(
            "node",
            {
                "rank": (3, "node rank x --nproc"),
                "world_size": 6,
                "node_rank": (1, "OMPI_COMM_WORLD_RANK"),
                "nnodes": (2, "OMPI_COMM_WORLD_SIZE"),
            },
            "--nproc 3 --master-addr node0",
        ),
    ),
    Case(
        "a launcher in each of several tasks",
        OPEN_MPI_4,
        Refused(f"mpirun --map-by ppr:1:node {LAUNCH} --nproc=2", "--nproc 2"),
    ),
    Case(
        "a launcher in each of several tasks of another node",
        {**OPEN_MPI_4, "OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"},
        Refused(f"mpirun --map-by ppr:1:node {LAUNCH} --nproc=2", "--nproc 2"),
    ),
    Case(
        "a flag that needs a parent",
        OPEN_MPI_5,
        Refused("one launcher per node: mpirun --map-by ppr:1:node", "--tee 3 --master-addr a"),
    ),
]

# MPICH: recorded from mpiexec 4.0.2 of Debian 12, rank 2 of `mpiexec -n 3` on two nodes.
# Intel MPI: the same Hydra; Intel MPI Library Developer Reference, "Hydra environment variables".
MPICH = {
    "PMI_RANK": "2",
    "PMI_SIZE": "3",
    "PMI_FD": "6",
    "MPI_LOCALRANKID": "0",
    "MPI_LOCALNRANKS": "1",
    "MPIR_CVAR_CH3_INTERFACE_HOSTNAME": "node1",
}
INTEL_MPI = {
    "PMI_RANK": "1",
    "PMI_SIZE": "4",
    "MPI_LOCALRANKID": "1",
    "MPI_LOCALNRANKS": "2",
    "I_MPI_HYDRA_BOOTSTRAP": "ssh",
    "I_MPI_INFO_NUMA_NODE_NUM": "2",
}
HYDRA_CASES = [
    Case(
        "MPICH on two nodes",
        MPICH,
        Found(
            "task",
            {
                "rank": (2, "PMI_RANK"),
                "world_size": (3, "PMI_SIZE"),
                "local_rank": (0, "MPI_LOCALRANKID"),
                "local_world_size": (1, "MPI_LOCALNRANKS"),
                "node_rank": (None, UNKNOWN),
                "nnodes": (None, UNKNOWN),
                "master_addr": ("node0", "--master-addr"),
                "master_port": 29500,
                "run_id": "none",
            },
            "--master-addr node0",
        ),
    ),
    Case("MPICH: no host of rank 0", MPICH, Refused("type --master-addr HOST")),
    Case(
        "Intel MPI on two nodes",
        INTEL_MPI,
        Found(
            "task",
            {"rank": 1, "world_size": 4, "local_rank": 1, "local_world_size": 2},
            "--master-addr node0 --master-port 23456",
        ),
    ),
    Case(
        "on one node, and nothing tells this launch from another",
        {**INTEL_MPI, "PMI_SIZE": "2"},
        Refused("type --master-port N"),
    ),
    Case(
        "PMI_RANK alone, as Slurm's plugins export it, is no Hydra",
        {"PMI_RANK": "1", "PMI_SIZE": "2"},
        Found("local", {"rank": 0, "world_size": 1}),
    ),
]

# flux-framework/flux-coral2 src/shell/plugins/cray_pals.c; ALCF user guides (Polaris, Aurora).
PALS = {
    "PALS_RANKID": "5",
    "PALS_LOCAL_RANKID": "1",
    "PALS_LOCAL_SIZE": "4",
    "PALS_NODEID": "1",
    "PALS_APID": "3f5e0a9c-1c0e-4d0e-a6a5-1c4d4f0b8a11",
    "PALS_DEPTH": "1",
    "PBS_JOBID": "123.polaris-pbs-01",
}
PALS_CASES = [
    Case(
        "with PMI_SIZE",
        {**PALS, "PMI_RANK": "5", "PMI_SIZE": "8", "PMI_LOCAL_RANK": "1", "PMI_LOCAL_SIZE": "4"},
        Found(
            "task",
            {
                "rank": (5, "PALS_RANKID"),
                "world_size": (8, "PMI_SIZE"),
                "local_rank": (1, "PALS_LOCAL_RANKID"),
                "local_world_size": (4, "PALS_LOCAL_SIZE"),
                "node_rank": (1, "PALS_NODEID"),
                "nnodes": (None, UNKNOWN),
                "run_id": (PALS["PALS_APID"], "PALS_APID"),
            },
            "--master-addr x3005c0s7b0n0",
        ),
    ),
    Case("without PMI_SIZE", PALS, Refused("HPE PALS exports no world size here; type --world-")),
    Case(
        "without PMI_SIZE, which was typed",
        PALS,
        Found("task", {"world_size": (8, "--world-size")}, "--world-size 8 --master-addr x0"),
    ),
    Case(
        "a size that contradicts the one that was typed",
        {**PALS, "PMI_SIZE": "8"},
        Refused("--world-size 9, but it is 8 (PMI_SIZE); leave --world-size out", "--world-size 9"),
    ),
]

# flux-environment(7).
FLUX = {
    "FLUX_JOB_ID": "f4Zx3",
    "FLUX_JOB_SIZE": "4",
    "FLUX_JOB_NNODES": "1",
    "FLUX_TASK_RANK": "2",
    "FLUX_TASK_LOCAL_ID": "2",
    "PMI_RANK": "2",
    "PMI_SIZE": "4",
}
FLUX_CASES = [
    Case(
        "one node",
        FLUX,
        Found(
            "task",
            {
                "rank": (2, "FLUX_TASK_RANK"),
                "world_size": (4, "FLUX_JOB_SIZE"),
                "local_rank": (2, "FLUX_TASK_LOCAL_ID"),
                "local_world_size": (4, "FLUX_JOB_SIZE on one node (FLUX_JOB_NNODES)"),
                "node_rank": 0,
                "nnodes": (1, "FLUX_JOB_NNODES"),
                "master_addr": HERE,
                "run_id": ("f4Zx3", "FLUX_JOB_ID"),
            },
        ),
    ),
    Case(
        "a task on each of four nodes",
        {**FLUX, "FLUX_JOB_NNODES": "4", "FLUX_TASK_LOCAL_ID": "0"},
        Found(
            "task",
            {
                "local_world_size": (1, "FLUX_JOB_SIZE and FLUX_JOB_NNODES are equal"),
                "node_rank": (None, UNKNOWN),
                "nnodes": 4,
            },
            "--master-addr node0",
        ),
    ),
    Case(
        "some tasks on each of two nodes",
        {**FLUX, "FLUX_JOB_NNODES": "2", "FLUX_TASK_LOCAL_ID": "0"},
        Refused("type --local-world-size N", "--master-addr node0"),
    ),
    Case(
        "some tasks on each of two nodes, as typed",
        {**FLUX, "FLUX_JOB_NNODES": "2", "FLUX_TASK_LOCAL_ID": "0"},
        Found(
            "task",
            {"local_world_size": (2, "--local-world-size"), "node_rank": None, "nnodes": 2},
            "--local-world-size 2 --master-addr node0",
        ),
    ),
    Case(
        "a launcher in each of two tasks on each of two nodes",
        {**FLUX, "FLUX_JOB_NNODES": "2", "FLUX_TASK_RANK": "1", "FLUX_TASK_LOCAL_ID": "0"},
        Refused(
            f"flux run --tasks-per-node=1 {LAUNCH} --nproc=2",
            "--nproc 2 --master-addr node0",
        ),
    ),
]

# Lightning's LSF environment; hydra's lsf_query_node_list.c; IBM Spectrum LSF reference.
JSRUN = {
    "LSB_JOBID": "1234",
    "LSB_DJOB_RANKFILE": "{files}/ranks",
    "JSM_NAMESPACE_RANK": "3",
    "JSM_NAMESPACE_SIZE": "4",
    "JSM_NAMESPACE_LOCAL_RANK": "1",
    "JSM_NAMESPACE_LOCAL_SIZE": "2",
}
RANKFILE = {"ranks": "batch1\nh41n08\nh41n08\nh41n09\nh41n09\n"}
JSRUN_CASES = [
    Case(
        "all hosts of the rank file",
        JSRUN,
        Found(
            "task",
            {
                "rank": (3, "JSM_NAMESPACE_RANK"),
                "world_size": (4, "JSM_NAMESPACE_SIZE"),
                "local_rank": (1, "JSM_NAMESPACE_LOCAL_RANK"),
                "local_world_size": (2, "JSM_NAMESPACE_LOCAL_SIZE"),
                "master_addr": ("h41n08", "second host of LSB_DJOB_RANKFILE"),
                "run_id": ("1234", "LSB_JOBID"),
            },
        ),
        RANKFILE,
    ),
    Case(
        "one of two at once",
        {**JSRUN, "JSM_NAMESPACE_ID": "2"},
        Found("task", {"run_id": ("1234.2", "LSB_JOBID.JSM_NAMESPACE_ID")}),
        RANKFILE,
    ),
    Case(
        "one host, and not the first of the file",
        {**JSRUN, "JSM_NAMESPACE_SIZE": "2", "JSM_NAMESPACE_RANK": "1"},
        Found("task", {"master_addr": (HERE, "this host: all ranks are on it")}),
        RANKFILE,
    ),
    Case(
        "some hosts of the file, it is not known which",
        {**JSRUN, "JSM_NAMESPACE_SIZE": "6"},
        Refused("uses some of its hosts only; type --master-addr HOST"),
        RANKFILE,
    ),
    Case("no rank file", JSRUN, Refused("it cannot be read, or")),
]

# kubeflow/trainer pkg/constants/constants.go; the variables are torchrun's flags.
KUBEFLOW = {
    "PET_NNODES": "2",
    "PET_NPROC_PER_NODE": "4",
    "PET_NODE_RANK": "1",
    "PET_MASTER_ADDR": "mnist-node-0-0.mnist",
    "PET_MASTER_PORT": "29400",
    "JOB_COMPLETION_INDEX": "1",
}
KUBEFLOW_CASES = [
    Case(
        "two pods",
        KUBEFLOW,
        Found(
            "node",
            {
                "rank": (4, "node rank x PET_NPROC_PER_NODE"),
                "world_size": 8,
                "local_world_size": (4, "PET_NPROC_PER_NODE"),
                "node_rank": (1, "PET_NODE_RANK"),
                "nnodes": (2, "PET_NNODES"),
                "master_addr": ("mnist-node-0-0.mnist", "PET_MASTER_ADDR"),
                "master_port": (29400, "PET_MASTER_PORT"),
                "run_id": "none",
            },
        ),
    ),
    Case(
        "--nproc before PET_NPROC_PER_NODE",
        KUBEFLOW,
        Found("node", {"local_world_size": (3, "--nproc"), "world_size": 6}, "--nproc 3"),
    ),
    Case(
        "a worker for each CPU",
        {**KUBEFLOW, "PET_NPROC_PER_NODE": "cpu"},
        Found(
            "node",
            {"local_world_size": (len(os.sched_getaffinity(0)), "PET_NPROC_PER_NODE cpu")},
        ),
    ),
    Case(
        "a number of nodes that changes",
        {**KUBEFLOW, "PET_NNODES": "1:4"},
        Refused("PET_NNODES: '1:4' asks for a number of nodes that changes"),
    ),
    Case(
        "no number of workers",
        {**KUBEFLOW, "PET_NPROC_PER_NODE": "many"},
        Refused("PET_NPROC_PER_NODE: 'many' is not a number of workers"),
    ),
    Case(
        "no port",
        {**KUBEFLOW, "PET_MASTER_PORT": "99999"},
        Refused("PET_MASTER_PORT='99999' is not a port"),
    ),
    Case(
        "this pod alone",
        KUBEFLOW,
        Found(
            "local",
            {"rank": 0, "world_size": 4, "nnodes": 1, "master_addr": "127.0.0.1"},
            "--standalone",
        ),
    ),
    Case(
        "one node where there are two",
        KUBEFLOW,
        Refused("PET_NNODES says 2 nodes, each with a launcher; leave --nnodes out", "--nnodes 1"),
    ),
]

# kubernetes.io, "Jobs", completion mode Indexed.
INDEXED_JOB = {"JOB_COMPLETION_INDEX": "1", "KUBERNETES_SERVICE_HOST": "10.96.0.1"}
KUBERNETES_CASES = [
    Case(
        "what is not exported, typed",
        INDEXED_JOB,
        Found(
            "node",
            {
                "rank": 2,
                "world_size": 6,
                "node_rank": (1, "JOB_COMPLETION_INDEX"),
                "nnodes": (3, "--nnodes"),
                "master_addr": ("train-0.train", "--master-addr"),
                "master_port": 29500,
            },
            "--nproc 2 --nnodes 3 --master-addr train-0.train",
        ),
    ),
    Case("no number of pods", INDEXED_JOB, Refused("type --nnodes N", "--nproc 2")),
    Case(
        "no host of the first pod",
        INDEXED_JOB,
        Refused("JOB-0.SERVICE; type --master-addr HOST", "--nproc 2 --nnodes 3"),
    ),
    Case(
        "each pod alone",
        INDEXED_JOB,
        Found("local", {"rank": 0, "world_size": 2}, "--nproc 2 --standalone"),
    ),
]

# torch.distributed, "Environment variable initialization"; PyTorchJob of Kubeflow's operator.
PLATFORM = {
    "RANK": "1",
    "WORLD_SIZE": "4",
    "MASTER_ADDR": "job-master-0",
    "MASTER_PORT": "23456",
}
PLATFORM_CASES = [
    Case(
        "one process per pod",
        PLATFORM,
        Found(
            "task",
            {
                "rank": (1, "RANK"),
                "world_size": (4, "WORLD_SIZE"),
                "local_rank": (0, "one process per container (LOCAL_RANK is not set)"),
                "local_world_size": 1,
                "node_rank": (None, UNKNOWN),
                "nnodes": (None, UNKNOWN),
                "master_addr": ("job-master-0", "MASTER_ADDR"),
                "master_port": (23456, "MASTER_PORT"),
            },
        ),
    ),
    Case(
        "one launcher per pod",
        PLATFORM,
        Found(
            "node",
            {
                "rank": (2, "node rank x --nproc"),
                "world_size": 8,
                "node_rank": (1, "RANK"),
                "nnodes": (4, "WORLD_SIZE"),
                "master_addr": ("job-master-0", "MASTER_ADDR"),
                "master_port": (23456, "MASTER_PORT"),
            },
            "--nproc 2",
        ),
    ),
    Case(
        "several processes per container",
        {**PLATFORM, "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "NODE_RANK": "0"},
        Found(
            "task",
            {
                "local_rank": (1, "LOCAL_RANK"),
                "local_world_size": (2, "LOCAL_WORLD_SIZE"),
                "node_rank": (0, "NODE_RANK"),
            },
        ),
    ),
    Case(
        "a local rank without its size",
        {**PLATFORM, "LOCAL_RANK": "1"},
        Refused("type --local-world-size N"),
    ),
    Case(
        "a local size without a rank",
        {**PLATFORM, "LOCAL_WORLD_SIZE": "2"},
        Refused("type export LOCAL_RANK=N for each"),
    ),
    Case(
        "a launcher in each of several processes",
        {**PLATFORM, "LOCAL_RANK": "1"},
        Refused(f"one launcher per node: {LAUNCH} --nproc=2", "--nproc 2"),
    ),
    Case(
        "a rank that is none",
        {**PLATFORM, "RANK": "$OMPI_COMM_WORLD_RANK"},
        Refused("RANK='$OMPI_COMM_WORLD_RANK' is not a whole number; type unset RANK"),
    ),
    Case(
        "a rank beyond the size",
        {**PLATFORM, "RANK": "4"},
        Refused("RANK says rank 4 and WORLD_SIZE says world size 4, which cannot both be"),
    ),
    Case(
        "this container alone",
        PLATFORM,
        Found("local", {"rank": 0, "world_size": 2, "master_addr": "127.0.0.1"})._replace(
            flags="--nproc 2 --standalone"
        ),
    ),
]

# qsub(1B), "Environment Variables"; a line per slot.
PBS = {"PBS_JOBID": "123.server", "PBS_NODEFILE": "{files}/nodes"}
PBS_CASES = [
    Case(
        "one host",
        PBS,
        Found(
            "local",
            {"world_size": 2, "master_addr": "127.0.0.1", "run_id": ("123.server", "PBS_JOBID")},
            "--nproc 2",
        ),
        {"nodes": f"{HERE}\n{HERE}\n"},
    ),
    Case(
        "two hosts, with a domain",
        PBS,
        Found(
            "node",
            {
                "rank": 2,
                "world_size": 4,
                "node_rank": (1, f"place of {HERE} in PBS_NODEFILE"),
                "nnodes": (2, "PBS_NODEFILE"),
                "master_addr": ("first.cluster", "first host of PBS_NODEFILE"),
            },
            "--nproc 2",
        ),
        {"nodes": f"first.cluster\nfirst.cluster\n{HERE}.cluster\n"},
    ),
    Case(
        "two hosts, and this is neither",
        PBS,
        Refused("which of the 2 nodes this is; type --node-rank N", "--nproc 2"),
        {"nodes": "first\nsecond\n"},
    ),
    Case(
        "no file, as in a container",
        PBS,
        Refused("PBS_NODEFILE cannot be read here", "--nproc 2"),
    ),
    Case(
        "no file, and it was typed",
        PBS,
        Found("local", {"world_size": 2}, "--nproc 2 --standalone"),
    ),
]

# qsub(1), "Environmental variables"; sge_pe(5): "host slots queue processors".
GRID_ENGINE = {
    "JOB_ID": "77",
    "NSLOTS": "8",
    "NHOSTS": "2",
    "SGE_TASK_ID": "undefined",
    "PE_HOSTFILE": "{files}/hosts",
}
GRID_ENGINE_CASES = [
    Case(
        "two hosts",
        GRID_ENGINE,
        Found(
            "node",
            {
                "rank": 0,
                "world_size": 6,
                "node_rank": (0, f"place of {HERE} in PE_HOSTFILE"),
                "nnodes": (2, "NHOSTS"),
                "master_addr": (HERE, "first host of PE_HOSTFILE"),
                "run_id": ("77", "JOB_ID"),
            },
            "--nproc 3",
        ),
        {"hosts": f"{HERE} 4 all.q@{HERE} UNDEFINED\nsecond 4 all.q@second UNDEFINED\n"},
    ),
    Case(
        "slots are no workers",
        {"JOB_ID": "77", "NSLOTS": "8", "NHOSTS": "1"},
        Found("local", {"world_size": 1, "run_id": "77"}),
    ),
    Case(
        "without a parallel environment",
        {"JOB_ID": "77", "NSLOTS": "1"},
        Found("local", {"world_size": 2}, "--nproc 2"),
    ),
    Case(
        "a task of an array",
        {"JOB_ID": "77", "NSLOTS": "1", "SGE_TASK_ID": "3"},
        Found("local", {"run_id": ("77.3", "JOB_ID.SGE_TASK_ID")}),
    ),
]

# Recorded from Slurm 22.05.8: `sbatch -N1 -n2`, `salloc -N2 -n4`.
BATCH = {
    "SLURM_JOB_ID": "1000",
    "SLURM_JOB_NODELIST": "node0",
    "SLURM_JOB_NUM_NODES": "1",
    "SLURM_NTASKS": "2",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
    "SLURM_GTIDS": "0",
    "SLURMD_NODENAME": "node0",
}
SALLOC = {
    "SLURM_JOB_ID": "1000",
    "SLURM_JOB_NODELIST": "node[0-1]",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_NTASKS": "4",
    "SLURM_TASKS_PER_NODE": "3,1",
}
# Recorded from task 2 of `srun -N2 -n3` of Slurm 22.05.8.
STEP = {
    "SLURM_JOB_ID": "1000",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NODELIST": "node[0-1]",
    "SLURM_STEP_TASKS_PER_NODE": "2,1",
    "SLURM_JOB_NODELIST": "node[0-1]",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_NTASKS": "3",
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
    "SLURM_GTIDS": "2",
    "SLURM_KILL_BAD_EXIT": "1",
}
IN_STEP = {"rank": (2, "SLURM_PROCID"), "world_size": (3, "SLURM_STEP_NUM_TASKS")}
ONE_NODE_STEP = {
    **STEP,
    "SLURM_STEP_NUM_TASKS": "1",
    "SLURM_STEP_NUM_NODES": "1",
    "SLURM_STEP_NODELIST": "node1",
    "SLURM_STEP_TASKS_PER_NODE": "1",
    "SLURM_PROCID": "0",
    "SLURM_NODEID": "0",
    "SLURM_GTIDS": "0",
}
SLURM_CASES = [
    Case(
        "a batch script on one node",
        BATCH,
        Found("local", {"world_size": 2, "run_id": ("1000", "SLURM_JOB_ID")}, "--nproc 2"),
    ),
    Case("a batch script with two tasks", BATCH, Refused(f"srun is missing; type srun {LAUNCH}")),
    Case(
        "salloc on two nodes",
        SALLOC,
        Refused(
            f"type srun --nodes=2 --ntasks=2 --ntasks-per-node=1 {LAUNCH} --nproc=2", "--nproc 2"
        ),
    ),
    Case(
        "by hand in salloc on two nodes, where the others may know no job",
        SALLOC,
        Found(
            "node",
            {"rank": 2, "world_size": 4, "node_rank": (1, "--node-rank"), "master_port": 29500},
            "--nproc 2 --nnodes 2 --node-rank 1 --master-addr node0",
        ),
    ),
    Case(
        "a step",
        STEP,
        Found(
            "task",
            {
                **IN_STEP,
                "local_rank": (0, "SLURM_LOCALID"),
                "local_world_size": (1, "number of SLURM_GTIDS=2"),
                "node_rank": (1, "SLURM_NODEID"),
                "nnodes": (2, "SLURM_STEP_NUM_NODES"),
                "master_addr": ("node0", "first host of SLURM_STEP_NODELIST=node[0-1]"),
                "master_port": (22011, "computed from SLURM_JOB_ID.SLURM_STEP_ID=1000.0"),
                "run_id": ("1000.0", "SLURM_JOB_ID.SLURM_STEP_ID"),
            },
        ),
    ),
    Case(
        "a name of the fast network",
        STEP,
        Found("task", {"master_addr": "node0i"}, "--master-suffix i"),
    ),
    Case(
        "a launcher on the node that has one task of three",
        STEP,
        Refused(f"srun --nodes=2 --ntasks=2 --ntasks-per-node=1 {LAUNCH} --nproc=2", "--nproc 2"),
    ),
    Case(
        "a step for each node of a job by hand",
        {**ONE_NODE_STEP, "SLURM_STEP_RESV_PORTS": "12000-12003"},
        Found(
            "node",
            {"rank": 2, "world_size": 4, "master_port": 29500, "run_id": "none"},
            "--nproc 2 --nnodes 2 --node-rank 1 --master-addr node0",
        ),
    ),
    Case(
        "a step for each node of a job by hand, and no host of rank 0",
        ONE_NODE_STEP,
        Refused("type --master-addr HOST", "--nproc 2 --nnodes 2 --node-rank 1"),
    ),
    Case(
        "the first of the reserved ports",
        {**STEP, "SLURM_STEP_RESV_PORTS": "12000-12003"},
        Found("task", {"master_port": (12000, "SLURM_STEP_RESV_PORTS")}),
    ),
    Case(
        "reserved ports that are none",
        {**STEP, "SLURM_STEP_RESV_PORTS": "99999"},
        Refused("SLURM_STEP_RESV_PORTS='99999' is not a port; type --master-port N"),
    ),
    Case(
        "a host list that is none",
        {**STEP, "SLURM_STEP_NODELIST": "node[0-"},
        Refused("this [ is not closed"),
    ),
]

ALL = {
    "Open MPI": OPEN_MPI_CASES,
    "Hydra": HYDRA_CASES,
    "PALS": PALS_CASES,
    "Flux": FLUX_CASES,
    "jsrun": JSRUN_CASES,
    "Kubeflow": KUBEFLOW_CASES,
    "Kubernetes": KUBERNETES_CASES,
    "platform": PLATFORM_CASES,
    "PBS": PBS_CASES,
    "Grid Engine": GRID_ENGINE_CASES,
    "Slurm": SLURM_CASES,
}


# What is said of this machine's name and interfaces is another test's subject.
INTERFACES = {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "eth0"}


def explained(flags: str, environ: Mapping[str, str]) -> dict[str, Any]:
    return explain(*flags.split(), **{**INTERFACES, **environ})


def of_kind(kind: type) -> list[Any]:
    return [
        pytest.param(case, id=f"{manager}: {case.name}")
        for manager, cases in ALL.items()
        for case in cases
        if isinstance(case.expected, kind)
    ]


def environ_of(case: Case, directory: Path) -> dict[str, str]:
    for name, text in case.files.items():
        (directory / name).write_text(text)
    return {k: v.replace("{files}", str(directory)) for k, v in case.environ.items()}


@pytest.mark.parametrize("case", of_kind(Found))
def test_the_world_is_what_the_manager_exports(case: Case, tmp_path: Path):
    found = explained(case.expected.flags, environ_of(case, tmp_path))
    assert found["mode"] == case.expected.mode
    for question, expected in case.expected.values.items():
        source = found["sources"][question]
        if isinstance(expected, tuple):
            assert (source["value"], source["source"]) == expected, question
        assert found["world"][question] == source["value"]
        assert found["world"][question] == (
            expected[0] if isinstance(expected, tuple) else expected
        )


@pytest.mark.parametrize("case", of_kind(Refused))
def test_what_is_not_exported_is_asked_for_in_one_line(case: Case, tmp_path: Path):
    environ = clean_environ(**environ_of(case, tmp_path))
    done = launch(*case.expected.flags.split(), REPORTER, environ=environ)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert case.expected.said in line


def test_what_is_unknown_is_not_set_for_the_worker():
    (worker,) = explained("--master-addr node0", MPICH)["workers"]
    assert worker["env"]["RANK"] == "2"
    assert not {"NODE_RANK", "GROUP_RANK", "GROUP_WORLD_SIZE"} & set(worker["env"])


def test_pals_variables_of_slurms_own_plugin_are_not_pals():
    shasta = {k: v for k, v in PALS.items() if k.startswith("PALS_")}
    shasta |= {"PALS_RANKID": "2", "PALS_LOCAL_RANKID": "0", "PALS_LOCAL_SIZE": "1"}
    found = explained("", {**STEP, **shasta})
    assert found["sources"]["rank"]["source"] == "SLURM_PROCID"
    assert found["world"]["run_id"] == "1000.0"
    assert found["warnings"] == []


def test_open_mpi_inside_a_slurm_step_wins_and_it_is_said():
    found = explained("--master-addr node0", {**STEP, **OPEN_MPI_4})
    assert found["sources"]["rank"]["source"] == "OMPI_COMM_WORLD_RANK"
    assert found["world"]["world_size"] == 4
    (said,) = found["warnings"]
    assert said.startswith("Open MPI and Slurm disagree about the ranks; those of Open MPI")


def test_the_allocation_around_open_mpi_contradicts_nothing():
    found = explained("--master-addr node0", {**SALLOC, **OPEN_MPI_4, "SLURM_NTASKS": "2"})
    assert found["mode"] == "task"
    assert found["warnings"] == []


def test_an_outer_manager_that_cannot_be_read_does_not_matter():
    unreadable = {**STEP, "SLURM_PROCID": "x", "SLURM_STEP_NODELIST": "node[0-"}
    found = explained("--master-addr node0", {**unreadable, **OPEN_MPI_4})
    assert found["world"]["rank"] == 2


# enroot conf/hooks/extra/50-slurm-pytorch.sh, where scontrol exists.
ENROOT = {
    "RANK": "2",
    "WORLD_SIZE": "3",
    "LOCAL_RANK": "0",
    "MASTER_ADDR": "node0",
    "MASTER_PORT": "62000",
    "OMP_NUM_THREADS": "1",
}


def test_what_enroots_hook_exports_inside_a_step_is_kept():
    found = explained("", {**STEP, **ENROOT})
    assert found["sources"]["rank"]["source"] == "SLURM_PROCID"
    assert found["sources"]["master_port"]["source"] == "MASTER_PORT"
    assert found["world"]["master_port"] == 62000
    assert found["warnings"] == []


def test_the_ranks_that_enroots_hook_exports_for_one_launcher_per_node_are_replaced():
    step = {**STEP, "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}
    step |= {"SLURM_PROCID": "1", "SLURM_GTIDS": "1", "SLURM_NTASKS": "2"}
    found = explained("--nproc 4", {**step, **ENROOT, "RANK": "1", "WORLD_SIZE": "2"})
    assert found["world"]["rank"] == 4
    assert found["world"]["world_size"] == 8
    assert found["world"]["master_port"] == 62000
    assert found["warnings"][0].startswith("replaced what an outer launcher or a profile left: ")


@pytest.mark.parametrize("address", ["localhost", "127.0.0.1", "::1"])
def test_an_inherited_address_by_which_every_node_means_itself_is_replaced(address: str):
    found = explained("", {**STEP, "MASTER_ADDR": address})
    assert found["world"]["master_addr"] == "node0"
    assert any(f"replaced MASTER_ADDR={address}" in said for said in found["warnings"])
