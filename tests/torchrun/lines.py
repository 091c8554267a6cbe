"""The command lines: what torchrun's users type, from its --help, documentation and own tests, from
torch.distributed.launch, PET_*, PyTorchJob and batch scripts.

SAMPLE are few that `make test` runs; `make full` runs all.
"""

import os
import re
import shlex
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from string import Template
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.support.slurm_variables import SHELL_OF_TWO_NODES

HERE = Path(__file__).parent
PROBE, SCRIPTS = HERE / "probe.py", HERE / "scripts"
TORCHRUN, LAUNCH = "torch.distributed.run", "torch.distributed.launch"
FILES, PIPE, TERMINAL = "files", "a pipe", "a terminal"
NOTHING: Mapping[str, str] = MappingProxyType({})


class Line(NamedTuple):
    """What is typed, and where."""

    text: str  # after the launcher's name; {dir}, {logs}, {tmp}, {scripts}, {python}, {port}, ...
    environ: Mapping[str, str] = NOTHING
    do: str = ""  # what the probe does, see probe.py
    shows: str = ""  # rows of differences that must be seen, ROW or ROW/FACET, with commas between
    signals: tuple[str, ...] = ()  # for the launcher, when two workers run
    program: str = TORCHRUN
    stdin: Path = Path(os.devnull)
    on: str = FILES  # what its streams are
    hindrance: str = ""  # one of HINDRANCES, see warm.py
    launchers: int = 1  # that are started with it, one for each {node}
    status: int | None = None  # torchrun's, of a program, which has no probe
    needs: tuple[str, ...] = ()  # packages

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text)

    @property
    def rows(self) -> dict[str, str]:
        """The rows that it shows, and the facet in which that must be seen, or ""."""
        named = (each.partition("/") for each in self.shows.split(", ") if each)
        return {row: facet for row, _, facet in named}

    @property
    def script(self) -> str:
        """Its name, of a program."""
        return self.text.partition("{scripts}/")[2].partition(".py")[0]

    @property
    def is_program(self) -> bool:
        return self.status is not None

    def __str__(self) -> str:
        before = "".join(f"{name}={value} " for name, value in self.environ.items())
        where = (self.do, *self.signals, self.hindrance, "" if self.on == FILES else self.on)
        after = "".join(f" [{each}]" for each in where if each)
        return f"{before}{self.program.rpartition('.')[2]} {self.text}{after}"


def two(flags: str, *environ: Mapping[str, str], **more: Any) -> Line:
    """A line that starts the probe twice."""
    return Line(f"{flags} --nproc-per-node 2 train.py".strip(), *environ, **more)


def launch(text: str, **more: Any) -> Line:
    """A line of torch.distributed.launch."""
    return Line(text, program=LAUNCH, **more)


TWO = "--nproc-per-node 2"
LOGS = "--log-dir {logs}"
C10D = "--rdzv-backend c10d --rdzv-endpoint localhost:{port}"
STATIC = "--rdzv-backend static --rdzv-endpoint 127.0.0.3:{port}"
OF_TWO = f"{TWO} {C10D} --rdzv-id 7"
MASTER = "--master-addr=127.0.0.1 --master-port={port}"
TEMPLATE = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"
FILED = {"TORCHELASTIC_ERROR_FILE": "{dir}/error.json"}
PET = {"PET_NNODES": "1", "PET_NODE_RANK": "0", "PET_NPROC_PER_NODE": "2",
       "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": "{port}"}  # fmt: skip
POD = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "{port}"}
USED = {**POD, "WORLD_SIZE": "2", "RANK": "1"}
OF_ONE_NODE = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1", "SLURM_NNODES": "1",
               "SLURM_JOB_NODELIST": "localhost"}  # fmt: skip
WRONG = "wrong use"
IGNORED = "--monitor_interval=0.5 --start-method spawn --event_log_handler=null --max_restarts=0"

# For the variables of the examples in torchrun's usage.
OF_USAGE = {"NUM_TRAINERS": "2", "NUM_NODES": "2", "JOB_ID": "7", "HOST_NODE_ADDR": "127.0.0.1"}


def examples() -> list[Line]:
    """The command lines in the usage of the torchrun that is installed."""
    if not (torch := find_spec("torch")):  # to import it takes seconds
        return []
    usage = (Path(str(torch.origin)).parent / "distributed" / "run.py").read_text()
    lines = []
    for found in re.findall(r"^    torchrun\n((?:     +.*\n)+)", usage, re.MULTILINE):
        text = " ".join(found.split()).partition("YOUR_TRAINING_SCRIPT.py")[0] + "train.py --arg1"
        text = Template(text).substitute(OF_USAGE)
        launchers = 4 if "1:4" in text else 2 if "--nnodes=2" in text else 1
        lines.append(Line(text, launchers=launchers))
    return lines


SAMPLE = [
    two("", shows="port, address, run id, node rank, agent store, device order, marks, prefix"),
    Line(f"--nproc_per_node=2 --nnodes=1 --node_rank=0 {MASTER} train.py a b"),
    two(f"--max-restarts 1 -r3 {LOGS}", do="1:exit 7@0", shows="error file"),
    two(f"-r 2 {LOGS}", do="1:exit 3;0:sleep", shows="exit status, last words"),
    Line("-m pkg.worker --lr 3e-4", {"PET_NPROC_PER_NODE": "2"}),
    two("", do="sleep", signals=("SIGINT",), shows="signals/signals"),
]

# Numbers of workers and nodes.
SIZES = [
    Line("train.py", shows="session, threads"),
    Line("--nproc-per-node cpu train.py"),
    Line("--nproc-per-node gpu train.py", shows=WRONG),
    Line("--nproc-per-node two train.py", shows=WRONG),
    Line("--nproc-per-node 2 --nproc-per-node 1 train.py"),
    Line("--nproc-per-node ' 2' train.py"),  # of wc -l
    Line("--nproc-per-node=+2 train.py", shows="less is allowed"),
    two("--nnodes 2:1", shows=WRONG),
]

# Where rank 0 listens, and where launchers meet.
RENDEZVOUS = [
    two("--standalone", do="reduce"),
    two("--standalone --master-port {busy}"),
    two("--rdzv-id 100", shows="run id"),
    two("--rdzv-id 100 --rdzv-backend c10d --rdzv-endpoint localhost"),
    two("--rdzv-backend c10d"),
    two(f"{C10D} --rdzv-conf is_host=1,use_libuv=0,store_type=tcp"),
    two("--rdzv-conf timeout=never,read_timeout=-1", shows="more is allowed"),
    two("--rdzv-conf nonsense", shows=WRONG),
    two("--rdzv-conf \"'join_timeout=60,a=1'\""),
    two("--master_addr=[::1] --master_port={port}", do="reduce"),
    two(MASTER, do="reduce tcp"),
    two("--local-addr 127.0.0.2 --master-addr 127.0.0.3 --master-port {port}"),
    two(f"--local-addr 127.0.0.2 {C10D.replace('localhost', '127.0.0.3')}"),
    two(f"--local-addr 127.0.0.2 {STATIC}"),
    two(f"{STATIC} --master-addr 127.0.0.9", shows="less is allowed"),
    two(f"{C10D} --master-port {{busy}}", shows="less is allowed"),
    Line(f"--nnodes 1:2 --rdzv-conf last_call_timeout=1 {OF_TWO} train.py"),
    Line(f"--nnodes 2 {OF_TWO} train.py", launchers=2),
    Line(f"--nnodes=2 --node-rank={{node}} {MASTER} --role r{{node}} {TWO} --tee 3 train.py",
         {TEMPLATE: "[${role_name}-${local_rank}:${rank}] "}, launchers=2),
    Line(f"--nnodes 2 {OF_TWO.replace('localhost', '[::1]')} train.py", launchers=2),
]  # fmt: skip

# Flags of torchrun that change little here, and those that do.
OTHERS = [
    two(f"--role=trainer --logs_specs=default --signals_to_handle SIGNONE {IGNORED}"),
    Line(f"--run-path {TWO} {{dir}}/train.py a", shows="run path"),
    two("--shutdown_timeout=5", do="1:exit 3;0:sleep"),
    two("--virtual_local_rank", {"CUDA_VISIBLE_DEVICES": "4,5"}),
    two("--virtual-local-rank", {"HIP_VISIBLE_DEVICES": "4,5"}, shows="virtual local rank"),
    Line(f"--virtual-local-rank {TWO} train.py --device ${{local_rank}}"),
    two("--use-env", shows="more is allowed"),
    two("--no-such-flag", shows=WRONG),
]

# What is run.
PROGRAMS = [
    Line(f"{TWO} -m no_such_module", shows=WRONG),
    Line(f"--no-python {TWO} {{python}} -u train.py ${{local_rank}}"),
    Line(f"--no-python {TWO} no-such-program", shows=WRONG),
    Line(f"--no-python -m {TWO} pkg.worker", shows=WRONG),
    Line(f"{TWO} train.py -- a", shows="two hyphens"),
    Line(f"{TWO} -- train.py a"),
    Line(f"{TWO} train.py -m --nnodes 3 -h --help '' 'a b' \"it's\""),
    Line(f"{TWO} train.py ${{local_rank}} a${{local_rank}}b '$local_rank' '$other' '${{rank}}'"),
    Line(f"{TWO} train.py '$$local_rank' '$local_rank.$$' '$local_ranks' '${{local_rank'"),
    Line("-", stdin=PROBE),
    Line("--nproc-per-node 1 - a b", stdin=PROBE),
    Line(f"{TWO} train.py", {"PYTHON_EXEC": "/no/such/python"}, shows=WRONG),
    Line(f"{TWO} no_such_script.py", shows=WRONG),
]

# Files and what is shown.
OUTPUT = [
    two(LOGS, shows="log files/files"),
    two(f"{LOGS} -r 0:1,1:2"),
    two(f"{LOGS} -r 3 -t 0:1"),
    two("--tee 3", shows="prefix"),
    two("--redirects 3", shows="log files/files"),
    two("--log-dir /dev/null -r 3"),
    two("--log-dir /dev/null --local-ranks-filter 0", shows="log files/stdout"),
    two("--log-dir {dir}/train.py -r 3", shows=WRONG),
    two("-r 0:1,", shows=WRONG),
    two("-t 10:3", shows="more is allowed"),
    two("--local_ranks_filter=1"),
    two(f"--local-ranks-filter 0 {LOGS} -r 3"),
    two("--local-ranks-filter 7", shows="less is allowed"),
    two(f"--rdzv-id '' {LOGS} -r 3"),
    two(f"--rdzv-id exp1 {C10D} {LOGS} --tee 3"),
    two(f"--tee 3 {LOGS} --duplicate_stderr_filters=err,other", shows="filtered logs"),
    two("--tee 3", {TEMPLATE: "<${rank}/${local_rank} ${role_name}>"}),
    two("", FILED, do="1:record"),
    two("", FILED, do="1:raise", shows="error file/error"),
    two("", FILED),
    two(LOGS, do="1:record"),
    two("", on=TERMINAL, shows="terminal/streams, terminal/environ COLUMNS"),
    two(f"--tee 3 {LOGS}", on=TERMINAL),
    Line("train.py", on=TERMINAL, shows="session"),
    two("", on=PIPE, shows="prefix"),
    two("", on=PIPE, do="1:exit 3;0:sleep", shows="exit status"),
]

# How it ends, and what hinders it from the start.
ENDS = [
    two("", do="1:kill 11;0:sleep"),
    two(f"-r 3 {LOGS}", do="1:exit 3;0:sleep", shows="last words"),
    two("--max-restarts 1", do="1:exit 7"),
    two("--max-restarts 2", do="0:kill 9@0;1:exit 3@1"),
    two("--max-restarts 1", do="1:exit 75@0", shows="final statuses"),
    two("", do="sleep", signals=("SIGHUP",)),
    two("--signals-to-handle SIGTERM,SIGUSR1 --shutdown-timeout 1", do="sleep",
        signals=("SIGUSR1", "SIGTERM")),
    two("", {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "20"}, do="sleep", signals=("SIGTERM",)),
    two("", do="0:family 1", shows="left behind"),
    two("", hindrance="stdin is closed", shows="open files"),
    two("", hindrance="umask 077"),
    two("", hindrance="nohup", shows="signals/ignored"),
]  # fmt: skip

# python -m torch.distributed.launch.
OLD = [
    launch("--nproc_per_node 2 train.py --lr 3"),
    launch("-m --nproc_per_node=2 pkg.worker a"),
    launch("--no_python --use-e --nproc_per_node=2 {python} train.py"),
    launch("--nproc_per_node=2 --virtual-local-rank train.py", shows="virtual local rank"),
    launch("--nproc_per_node 2", shows=WRONG),
]

# torchrun's variables.
VARIABLES = [
    Line("--nproc-per-node 1 train.py", {"PET_NPROC_PER_NODE": "2"}),
    Line("train.py", {"PET_NPROC_PER_NODE": "many"}, shows=WRONG),
    Line("train.py", PET),
    Line("train.py", {**PET, "PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "127.0.0.1:{port}"}),
    Line(f"{TWO} {{python}} train.py", {"PET_NO_PYTHON": "1"}),
    Line(f"{TWO} train.py", {"PET_NO_PYTHON": "1", "PET_MODULE": "1"}, shows=WRONG),
    Line(f"{TWO} pkg.worker a", {"PET_MODULE": "1"}),
    two("", {"PET_STANDALONE": "1", "PET_ROLE": "trainer", "PET_MONITOR_INTERVAL": "1"}),
    two("", {"PET_NNODES": "1:1", "PET_STANDALONE": "0", "PET_SHUTDOWN_TIMEOUT": "0"}),
    two("", {"PET_STANDALONE": "yes"}, shows=WRONG),
    two("", {"PET_RDZV_ID": "", "PET_NO_SUCH": "1", "PET_LOCAL_ADDR": "127.0.0.1"}),
    two("", {"PET_LOG_DIR": "{logs}", "PET_TEE": "3", "PET_LOCAL_RANKS_FILTER": "0"}),
    two("", {"PET_VIRTUAL_LOCAL_RANK": "1", "PET_SIGNALS_TO_HANDLE": "SIGTERM,SIGUSR1"}),
    Line(f"{TWO} {{dir}}/train.py", {"PET_RUN_PATH": "1"}, shows="run path"),
    two("", {"TORCHELASTIC_ENABLE_FILE_TIMER": "1"}, shows="file timer"),
    two("", {"TORCHELASTIC_HEALTH_CHECK_PORT": "{port}", "TORCHELASTIC_TIMER_FILE": "{tmp}/t"}),
]

# What other launchers, pods and profiles export.
AROUND = [
    two("", POD),
    two("--nnodes 1", {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "3"}),
    two("", {"MASTER_PORT": "{busy}"}),
    two("", {"MASTER_ADDR": "node7", "MASTER_PORT": "{port}"}),
    two("", {"MASTER_PORT": "abc"}, shows="less is allowed"),
    two("", {**USED, "TORCHELASTIC_RUN_ID": "old", "TORCHELASTIC_USE_AGENT_STORE": "True"}),
    two("", {**USED, "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}),
    two("", {"OMP_NUM_THREADS": "3", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}),
    two("", {"CUDA_VISIBLE_DEVICES": "", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"}),
    two("", {"CUDA_VISIBLE_DEVICES": "3"}, shows="less is allowed"),
    two("", {"PYTHONPATH": "/some/where", "PYTHONUNBUFFERED": "1", "NCCL_DEBUG": "INFO"}),
    two("--nnodes=1", OF_ONE_NODE),
    two("", SHELL_OF_TWO_NODES, shows="shell of a job"),
    Line("train.py", {**SHELL_OF_TWO_NODES, "SLURM_NTASKS": "4"}, shows="shell of a job"),
    two("--standalone", SHELL_OF_TWO_NODES),
]

GROUPS = [examples(), SIZES, RENDEZVOUS, OTHERS, PROGRAMS, OUTPUT, ENDS, OLD, VARIABLES, AROUND]
LINES = [*SAMPLE, *(line for group in GROUPS for line in group)]
