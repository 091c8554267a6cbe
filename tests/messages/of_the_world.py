"""The errors of ranks and sizes: flags, and what resource managers export."""

from tests.messages.row import HERE, ONE_EACH, SHELL, STEP, Row

MPICH = {"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"}
FLUX = {"FLUX_TASK_RANK": "2", "FLUX_JOB_SIZE": "4", "FLUX_TASK_LOCAL_ID": "0", "FLUX_JOB_NNODES": "2", "FLUX_JOB_ID": "f1"}  # fmt: skip
PALS = {"PALS_RANKID": "0", "PALS_LOCAL_RANKID": "0", "PALS_LOCAL_SIZE": "1", "PALS_APID": "a"}
PLATFORM = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "23456"}
POD = {"JOB_COMPLETION_INDEX": "1"}
PBS = {"PBS_JOBID": "1", "PBS_NODEFILE": "none"}
GRID = {"JOB_ID": "1", "NSLOTS": "2", "PE_HOSTFILE": "none"}
LSF = {"LSB_JOBID": "1", "LSB_DJOB_HOSTFILE": "none"}
OAR = {"OAR_JOB_ID": "1", "OAR_NODEFILE": "none"}
KUBEFLOW = {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "2", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "h", "PET_MASTER_PORT": "23456"}  # fmt: skip
ANYWHERE = "--standalone x.py"
OMPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}  # fmt: skip
BY_HAND = "--nnodes 2 --node-rank 1 --master-addr h"


def nodes(nodelist: str, why: str, do: str) -> Row:
    """A list of nodes that cannot be read; unset, the user's flags say where rank 0 is."""
    environ = {**STEP, "SLURM_STEP_NODELIST": nodelist}
    return Row("x.py", "SLURM_STEP_NODELIST cannot be read", why, do, "--master-addr node0 x.py", environ, mend="unset SLURM_STEP_NODELIST")  # fmt: skip


def counts(text: str, why: str) -> Row:
    environ = {**STEP, "SLURM_STEP_TASKS_PER_NODE": text}
    return Row("x.py", "SLURM_STEP_TASKS_PER_NODE cannot be read", why, "unset SLURM_STEP_TASKS_PER_NODE", "--local-world-size 2 x.py", environ, mend="unset SLURM_STEP_TASKS_PER_NODE")  # fmt: skip


MODES = [
    Row("--node-rank 1 x.py", "--node-rank", "without --nnodes has no effect", "use --nnodes N", "--node-rank 1 --nnodes 2 --master-addr h x.py"),
    Row("--nnodes 1 x.py", "--nnodes 1", "says 2 nodes, each with a launcher", "use --standalone", ANYWHERE, ONE_EACH),
    Row("--standalone --nnodes 2 x.py", "--standalone", "--nnodes 2 is for several", "leave one", ANYWHERE),
    Row("--nproc 2 x.py", "Slurm has started 2 tasks", "cannot start workers too", "srun", "x.py", STEP),
    Row("--nproc 2 x.py", "2 nodes (SLURM_JOB_NUM_NODES)", "srun is missing", "--standalone", "--nproc 2 --standalone x.py", SHELL),
    Row("x.py", "no list of hosts (PBS_NODEFILE) can be read here", "may have given this job several hosts", "use --standalone", ANYWHERE, PBS),
    Row("x.py", "no list of hosts (PE_HOSTFILE) can be read here", "may have given this job several", "--nnodes N --node-rank N --master-addr HOST", f"{BY_HAND} x.py", GRID),
    Row("x.py", "no list of hosts (LSB_HOSTS, LSB_MCPU_HOSTS,", "so LSF may have given this job several hosts", "use --standalone", ANYWHERE, LSF),
    Row("x.py", "no list of hosts (OAR_NODEFILE, OAR_NODE_FILE,", "so OAR may have given this job several hosts", "use --standalone", ANYWHERE, OAR),
    Row("--world-size 3 x.py", "--world-size 3", "but it is 4 (SLURM_STEP_NUM_TASKS)", "leave --world-size out", "x.py", STEP),
    Row("--nproc 2 --world-size 3 x.py", "--world-size 3", "but it is 2", "leave --world-size out", "--nproc 2 x.py"),
    Row("x.py", "HPE PALS exports no world size here", "no world size", "use --world-size N", "--world-size 1 --master-addr h x.py", PALS),
    Row("--master-addr h x.py", "Flux exports no local world size here", "no local world size", "use --local-world-size N", "--master-addr h --local-world-size 2 x.py", FLUX),
    Row("x.py", "the platform", "exports no local rank here", "export LOCAL_RANK=N", "x.py", {**PLATFORM, "LOCAL_WORLD_SIZE": "2"}, mend="export LOCAL_RANK=0"),
    Row("x.py", "MPI_LOCALNRANKS says 99999 ranks on this node", "more than the 32768", "unset what an outer launcher left", "x.py", {**MPICH, "PMI_SIZE": "99999", "MPI_LOCALNRANKS": "99999"}, mend="unset PMI_RANK PMI_SIZE MPI_LOCALRANKID MPI_LOCALNRANKS"),
    Row("x.py", "PMI_RANK says rank 7 and PMI_SIZE says world size 4", "which cannot both be", "unset what an outer launcher left", "x.py", {**MPICH, "PMI_RANK": "7"}, mend="unset PMI_RANK PMI_SIZE MPI_LOCALRANKID MPI_LOCALNRANKS"),
    Row("--nnodes 2 --node-rank 2 --master-addr h x.py", "node rank 2 (--node-rank)", "cannot be with 2 nodes", "use --node-rank N, from 0 to 1", f"{BY_HAND} x.py"),
    Row("--nproc 2 --nnodes 3 x.py", "--nnodes 3", "says 2 nodes", "leave --nnodes out", "--nproc 2 x.py", ONE_EACH),
    Row("--nproc 2 --master-addr h x.py", "exports no number of pods", "each pod is a job of its own", "use --nnodes N", "--nproc 2 --master-addr h --nnodes 2 x.py", POD),
    Row("--nproc 2 --nnodes 2 x.py", "exports no host of its first pod", "headless service", "use --master-addr HOST", "--nproc 2 --nnodes 2 --master-addr h x.py", POD),
    Row("--nnodes 0:0 --node-rank 0 x.py", "--nnodes: '0'", "is not a number above 0", "use a number from 1", "--nnodes 1 --node-rank 0 x.py"),
    Row("--nproc 1 x.py", "SLURM_STEP_NUM_NODES says 0 nodes", "0 nodes", "use --nnodes N", f"--nproc 1 {BY_HAND} x.py", {**ONE_EACH, "SLURM_STEP_NUM_NODES": "0"}),
    Row("--no-gang --nnodes 2 --master-addr h x.py", "nothing here gives the rank of this node", "of 2", "use --node-rank N, from 0 to 1", f"{BY_HAND} x.py"),
]  # fmt: skip
MASTER = [
    Row("--nnodes 2 --node-rank 1 x.py", "MASTER_ADDR=a b is several addresses", "nothing here names the host", "use --master-addr HOST", f"{BY_HAND} x.py", {"MASTER_ADDR": "a b"}),
    Row("--nnodes 2 --node-rank 1 x.py", "names the host of node rank 0", "nothing here", "use --master-addr HOST", f"{BY_HAND} x.py"),
    Row("--master-port 5 x.py", "exports no rank 0 host here", "Hydra", "use --master-addr HOST", "--master-port $PORT --master-addr h x.py", MPICH),
    Row("x.py", "SLURM_DISTRIBUTION=arbitrary", "rank 0 may be on any host of the step", "use --master-addr HOST", "--master-addr h x.py", {**STEP, "SLURM_DISTRIBUTION": "arbitrary"}),
    Row(f"{BY_HAND} --no-gang --master-port 0 x.py", "--master-port asks for any free port", "no node can tell the others", "use --master-port N", f"{BY_HAND} --no-gang --master-port $PORT x.py"),
    Row("x.py", "HPE PALS exports nothing that tells this launch from another", "exports nothing", "use --master-port N", "--master-port $PORT x.py", {k: v for k, v in PALS.items() if k != "PALS_APID"} | {"PMI_SIZE": "1"}),
    Row("--master-addr a --rdzv-endpoint b x.py", "--master-addr a", "--rdzv-endpoint has b", "leave one of the two out", "--rdzv-endpoint b x.py"),
    Row("--nproc 2 --master-port $PORT x.py", "(--master-port)", "is in use on this machine", "use --master-port N", "--nproc 2 --master-port $PORT2 x.py", prepare="python -m http.server $PORT >/dev/null 2>&1 & server=$!; until (exec 3<>/dev/tcp/127.0.0.1/$PORT) 2>/dev/null; do sleep 0.05; done; trap 'kill $server' EXIT"),
    Row("x.py", "SLURM_STEP_RESV_PORTS='x'", "is not a port", "use --master-port N", "--master-port $PORT x.py", {**STEP, "SLURM_STEP_RESV_PORTS": "x"}, mend="unset SLURM_STEP_RESV_PORTS"),
    Row("x.py", "SLURM_PROCID='x'", "is not a whole number", "unset SLURM_PROCID", ANYWHERE, {**STEP, "SLURM_PROCID": "x"}, mend="unset SLURM_PROCID"),
    Row("x.py", "MASTER_ADDR: 'localhost:29500'", "is not a host alone", "use --master-addr localhost --master-port 29500", "--master-addr localhost --master-port $PORT x.py", {"MASTER_ADDR": "localhost:29500"}),
    Row("x.py", "MASTER_PORT='x'", "is not a port", "unset MASTER_PORT", "x.py", {"MASTER_PORT": "x"}, mend="unset MASTER_PORT"),
    Row("x.py", "PET_NNODES: '2:1'", "runs backwards", "use 1:2", "x.py", {**KUBEFLOW, "PET_NNODES": "2:1"}, mend="export PET_NNODES=2"),
    Row(f"$ unshare --net python -m tests.messages.occupied {HERE} x.py", "found no free port", "for MASTER_PORT", "end what listens", "x.py"),
]  # fmt: skip
PIECES = [
    Row("$ env -u SLURM_PROCID " + HERE + " --explain x.py", "SLURM_PROCID is missing here, which Slurm sets", "a wrapper (env -i, srun --export=NONE, sudo, a container) may have removed it", "pass it on, or, for this machine alone, run", "x.py", STEP),
    Row("--nproc 2 x.py", "SLURM_JOB_ID is missing here, which Slurm sets", "may have removed it", "--standalone", "--standalone --nproc 2 x.py", {k: v for k, v in SHELL.items() if k != "SLURM_JOB_ID"}),
]  # fmt: skip
CLEAN = "$ mpirun --oversubscribe -n 2 env -i PATH=$PATH PYTHONPATH=$PYTHONPATH " + HERE
AMONG_OTHERS = [
    Row(f"{CLEAN} --explain x.py", "is above this process", "each task would be a job of its own", "pass them on, or, for this machine alone, run", f"{CLEAN} --explain --standalone x.py"),
    Row("x.py", "rank 0 is on node1 (SLURMD_NODENAME)", "the others look for it on node0", "use --master-addr node1", "--master-port $PORT --master-addr node1 x.py", {**STEP, "SLURM_PROCID": "0", "SLURM_NODEID": "0", "SLURMD_NODENAME": "node1"}),
]  # fmt: skip
EVEN = [
    Row("--no-gang --sysfs-root two --nproc gpu x.py", "--nproc gpu is 2 on this node", "might not fit together", "if each has 2, use", "--no-gang --sysfs-root two --nproc 2 x.py", ONE_EACH),
]  # fmt: skip
LISTS = [
    nodes(",", "names no host", "a host list reads like gpu7 or gpu[1-3,5]"),
    nodes("a]", "this ] has no partner", "write gpu[1-3]"),
    nodes("a[1", "this [ is not closed", "close it: gpu[1-3]"),
    nodes("a[2-1]", "runs backwards", "write [1-2]"),
    nodes("a[1:2]", "or a range", "gpu[0-8:4]"),
    nodes("a[1-2:0]", "or a range", "gpu[0-8:4]"),
    nodes("a[]", "is not a number", "write gpu[1-3,5]"),
    nodes("a[x]", "'x' is not a number", "write gpu[1-3,5]"),
    nodes("a[" + "1" * 19 + "]", "of at most 18 digits", "write gpu[1-3,5]"),
    Row("--nproc 2 x.py", "SLURM_JOB_NODELIST cannot be read", "names more than 1000000 hosts", "look for a range with a digit too many; unset SLURM_JOB_NODELIST and use --standalone", "--nproc 2 --standalone x.py", {**SHELL, "SLURM_JOB_NODELIST": "a[1-9000000]", "SLURM_JOB_NUM_NODES": "1"}, mend="unset SLURM_JOB_NODELIST"),
    counts("2(x2", "is not a count"),
    counts("2(x0)", "is not a count"),
    counts("two", "is not a count"),
    counts("2", "there is no node number 1")._replace(environ={**STEP, "SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_NODEID": "1", "SLURM_PROCID": "2"}),
]  # fmt: skip
ROWS = [*MODES, *MASTER, *PIECES, *AMONG_OTHERS, *EVEN, *LISTS]
