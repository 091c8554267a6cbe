"""Slurm: a step with one process per rank (srun), or a job's shell (sbatch, salloc, srun --pty).

A step's task has these variables, here the third of `srun -N2 -n3`:

    SLURM_STEP_ID=0  SLURM_STEP_NUM_TASKS=3  SLURM_STEP_NODELIST=node[0-1]
    SLURM_STEP_TASKS_PER_NODE=2,1  SLURM_PROCID=2  SLURM_LOCALID=0  SLURM_NODEID=1

The STEP variables come before those of the job: a step may have fewer tasks and nodes than its job,
and inside `salloc -n4` the tasks of `srun --preserve-env -n1` see SLURM_NTASKS=4. A batch script
has SLURM_PROCID=0, but is no rank: only the STEP variables prove a step. They do not where a task
has submitted the script by sbatch, which hands on its whole environment: there the title of the
slurmstepd among this process's ancestors decides.

A heterogeneous step has one node list for all its components, sorted by name, and the tasks per
node follow it; but rank 0 is on the first component. SLURM_GTIDS is always right.
Source: srun(1), "Output environment variables"; Slurm's src/common/env.c.
"""

from __future__ import annotations

import os
from contextlib import suppress

from spawnlaunch.base import cpuset, errors, reading
from spawnlaunch.cli import values
from spawnlaunch.node import proc
from spawnlaunch.world import identity, managers
from spawnlaunch.world.managers.slurm import lists

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from spawnlaunch.cli import flags

    T = TypeVar("T")

JOB_ID = "SLURM_JOB_ID"
HET_SIZE = "SLURM_HET_SIZE"  # number of components of a heterogeneous job
STEP_ID = "SLURM_STEP_ID"
PROCID = "SLURM_PROCID"
LOCALID = "SLURM_LOCALID"
NODEID = "SLURM_NODEID"
STEP_TASKS = "SLURM_STEP_NUM_TASKS"
STEP_NODES = "SLURM_STEP_NUM_NODES"
STEP_NODELIST = "SLURM_STEP_NODELIST"
STEP_TASKS_PER_NODE = "SLURM_STEP_TASKS_PER_NODE"
GLOBAL_IDS = "SLURM_GTIDS"  # the ranks of the tasks on this node
SIGNS = frozenset((STEP_ID, STEP_TASKS, STEP_NODES, STEP_NODELIST, STEP_TASKS_PER_NODE))
JOB_TASKS = "SLURM_NTASKS"
JOB_NODES = "SLURM_JOB_NUM_NODES"
JOB_NODELIST = "SLURM_JOB_NODELIST"
JOB_CPUS_PER_NODE = "SLURM_JOB_CPUS_PER_NODE"  # in the notation of the tasks per node
NODENAME = "SLURMD_NODENAME"  # this node's name, as the lists have it
NEEDED = (JOB_ID, STEP_ID, STEP_TASKS, STEP_NODES, PROCID, LOCALID, NODEID)  # each task has these
OF_A_SHELL = (JOB_NODELIST, JOB_NODES, JOB_CPUS_PER_NODE, PROCID)  # a shell has some of these
GRACE_S = 25.0  # below KillWait, Slurm's own time from SIGTERM to SIGKILL: 30 s by default
RESERVED_PORTS = "SLURM_STEP_RESV_PORTS"  # where MpiParams=ports is configured
PTY_PORT = "SLURM_PTY_PORT"
CPUS_ON_NODE = "SLURM_CPUS_ON_NODE"  # what the step or the shell has here
MASKS, KIND_OF_MASKS = "SLURM_CPU_BIND_LIST", "SLURM_CPU_BIND_TYPE"  # of the tasks here
STEP_GPUS = "SLURM_STEP_GPUS"  # srun(1): numbers by PCI address
MOST_GROUPS = 128  # as slurm.h's MAX_HET_JOB_COMPS: a larger size is a mistake
DAEMON = "slurmstepd"
NO_STEPS = ("batch", "extern", "interactive")  # slurmstepd's names of steps without ranks
INTERACTIVE_STEP = "4294967290"  # 0xfffffffa, SLURM_INTERACTIVE_STEP in slurm.h


def is_shell(environ: identity.Environ) -> bool:
    """Whether this process runs in a shell of the job, and is no rank of a step.

    Such a shell is a person's, from `srun --pty` or salloc's interactive step, or a batch script.
    """
    of_a_person = PTY_PORT in environ and (environ.get(STEP_TASKS) == "1" or _is_typed())
    return of_a_person or not is_step(environ)


def _is_typed() -> bool:
    """Whether an interactive shell started this process, by its process group.

    A shell with job control puts each command in a group of its own. A task with a terminal leads
    its session; the task and the processes that its script starts are in the task's own group.
    """
    session = os.getsid(0)
    if os.getpgrp() == session:
        return False
    for pid, name in proc.above():
        if name == DAEMON:
            return False
        if pid == session:
            return True
    return False


def is_step(environ: identity.Environ) -> bool:
    """Whether this process runs within a step with ranks: as a rank, or in a person's shell.

    The STEP variables may be inherited from another step: the title of slurmstepd decides.
    """
    if SIGNS.isdisjoint(environ) or environ.get(STEP_ID) == INTERACTIVE_STEP:
        return False
    job, _, step = started_by().partition(".")
    if not step:
        return True
    if step in NO_STEPS:
        return False
    # The tasks of all components of a heterogeneous step have the first component's job.
    named = (environ.get(JOB_ID, job), environ.get(STEP_ID, step))
    return bool(environ.get(HET_SIZE)) or (job, step) == named


def missing(request: flags.Request, environ: identity.Environ) -> list[str]:
    """The names of Slurm's variables that something between Slurm and this process has removed.

    An empty list where the flags or an inner manager give the ranks, which then need no variable
    of Slurm.
    """
    is_whole = all(map(environ.get, (*NEEDED, *SIGNS, GLOBAL_IDS)))
    if is_whole or request.standalone or request.is_by_hand:
        return []
    needed: list[str] = []
    if is_step(environ):
        until, needed = ("slurm", "Step"), [*NEEDED]
        if request.master_addr is None and request.rdzv_endpoint is None:
            needed.append(STEP_NODELIST)
        if request.local_world_size is None and not environ.get(GLOBAL_IDS):
            needed.append(STEP_TASKS_PER_NODE)
    elif any(map(environ.get, OF_A_SHELL)):
        until, needed = ("slurm", "Shell"), [*Shell.needs, JOB_NODES]
    missing_names = [name for name in needed if not environ.get(name)]
    if not missing_names:
        return []
    rows = [row[1:] for row in managers.ORDER]
    inner = (managers.load(*row) for row in rows[: rows.index(until)] if row != ("slurm", "Step"))
    return [] if any(manager(environ).is_present() for manager in inner) else missing_names


def started_by() -> str:
    """Return `JOB.STEP` from the title of the nearest slurmstepd above this process; else "".

    Such a title is `slurmstepd: [7.batch]`.
    """
    pid = proc.nearest((DAEMON,))
    title = (proc.read(pid, "cmdline") or "") if pid else ""
    return title.partition("[")[2].partition("]")[0]


def first_of(name: str, environ: identity.Environ) -> identity.Fact:
    """The first host of the list in the variable `name`."""
    return identity.Fact(
        _read(lambda text: next(lists.hosts(text)), name, environ),
        f"first host of {name}={environ[name]}",
    )


def job_and_step(environ: identity.Environ) -> identity.Fact | None:
    """Return `JOB.STEP`, equal in every task of a step, also across heterogeneous components."""
    if not environ.get(JOB_ID) or not environ.get(STEP_ID):
        return None
    # The first component's job is the same in all of them.
    names = ("SLURM_HET_JOB_ID", f"{JOB_ID}_HET_GROUP_0", f"{JOB_ID}_PACK_GROUP_0", JOB_ID)
    name = next(name for name in names if environ.get(name))
    return identity.Fact(f"{environ[name]}.{environ[STEP_ID]}", f"{name}.{STEP_ID}")


def hosts_of(name: str, environ: identity.Environ) -> list[str]:
    """The hosts in a variable's list; an empty list where it is not set."""
    return _read(lists.expand, name, environ) if environ.get(name) else []


def _read(read: Callable[..., T], name: str, environ: identity.Environ, *arguments: Any) -> T:
    """Read a variable in one of Slurm's notations. Raises UsageError where it cannot be read."""
    try:
        return read(environ.get(name, ""), *arguments)
    except lists.ListError as error:
        # A shell of a job needs its list.
        remedy = " and use --standalone" if name == JOB_NODELIST else ""
        line = f"{name} cannot be read: {error}; unset {name}{remedy}, or correct it"
        raise errors.UsageError(line) from None


class Slurm(identity.Manager):
    """A process in a Slurm job: the answers that a step and a shell share."""

    def size(self) -> tuple[identity.Fact | None, identity.Fact | None]:
        """The number of nodes and of tasks of the job, or of the step that this process is in."""
        names = (STEP_NODES, STEP_TASKS) if is_step(self.environ) else (JOB_NODES, JOB_TASKS)
        nodes, tasks = (identity.number(self.environ, name) for name in names)
        return nodes, tasks

    def step_devices(self) -> identity.Fact | None:
        """The whole step's devices on this node; a control group does not renumber them.

        Under --gpus-per-task it is only the task's own device.
        """
        with suppress(cpuset.CpuSetError):
            if numbers := sorted(cpuset.parse(self.environ.get(STEP_GPUS, ""))):
                return identity.Fact(numbers, STEP_GPUS)
        return None

    def masks(self) -> identity.Fact | None:
        """The masks of the tasks on this node, by local rank; more tasks start the list again."""
        masks, kind = (self.environ.get(name, "") for name in (MASKS, KIND_OF_MASKS))
        parse = cpuset.parse if "map_cpu" in kind else cpuset.parse_mask
        with suppress(cpuset.CpuSetError):
            if sets := [*map(parse, filter(None, masks.split(",")))]:
                return None if "ldom" in kind else identity.Fact(sets, MASKS)
        return None

    def more_cpus(self, allowed: cpuset.CpuSet, is_free: bool) -> str:
        """Return how to start with more than the allowed CPUs; "" where Slurm has not set the mask.

        Slurm 22.05 binds a step with a part of a node to that part in spite of --cpu-bind=none, and
        exports a mask: there SLURM_CPUS_ON_NODE is no more than the mask.
        """
        larger = "in a job with more CPUs (sbatch --exclusive)"
        if STEP_ID in self.environ:
            larger = f"with srun --cpus-per-task=N, or {larger}"
        given, cpus = self.masks(), self.environ.get(CPUS_ON_NODE, "")
        if not is_free or (reading.is_number(cpus) and int(cpus) <= len(allowed)):
            return larger
        is_bound = self.environ.get(KIND_OF_MASKS, "none") != "none"
        if given:
            is_bound = any(mask <= allowed for mask in given.value)
        if is_bound:
            return f"with srun --cpu-bind=none, or {larger}"
        return "" if cpus else larger

    def default_grace_s(self) -> identity.Fact | None:
        """The default grace in seconds inside a Slurm job, below Slurm's own; else None."""
        return identity.Fact(GRACE_S, "Slurm") if self.environ.get(NODENAME) else None

    def as_task(self, world: identity.World, i: int) -> dict[str, object]:
        """Return Slurm's variables for worker `i`, as if srun had started it as a task.

        They are those of srun(1), "OUTPUT ENVIRONMENT VARIABLES", that differ between a launcher's
        one task and as many tasks as it has workers. None: such a task would not have the variable.
        """
        environ, first, n = self.environ, world.rank, world.local_world_size
        per_node: str | None = f"{n}(x{world.nnodes})" if world.nnodes != 1 else str(n)
        each: int | None = n
        if world.nnodes and n * world.nnodes != world.world_size:
            per_node = each = None  # nodes differ in their numbers of workers, unknown here
        ranks: dict[str, object] = {
            PROCID: first + i,
            LOCALID: i,
            **dict.fromkeys((JOB_TASKS, "SLURM_NPROCS", STEP_TASKS), world.world_size),
            "SLURM_NTASKS_PER_NODE": each,
            **dict.fromkeys(("SLURM_TASKS_PER_NODE", STEP_TASKS_PER_NODE), per_node),
            GLOBAL_IDS: ",".join(map(str, range(first, first + n))),
        }
        others: dict[str, object] = {
            "SLURM_TASK_PID": identity.WORKER_PID,
            "SLURM_DISTRIBUTION": "block",
            **dict.fromkeys(("SLURM_CPU_BIND", MASKS, KIND_OF_MASKS)),
            **dict.fromkeys(("SLURM_TRES_PER_TASK", "SLURM_TRES_PER_TASK_CPU")),
        }
        # Of these the launcher has the whole node's.
        for name in ("SLURM_CPUS_PER_TASK", "SLURM_GPUS_PER_TASK"):
            count = environ.get(name, "")
            others[name] = int(count) // n or None if reading.is_number(count) else None
        if world.mode == identity.LOCAL:  # in a step that may have other nodes
            others |= {NODEID: 0, "SLURM_NNODES": 1, STEP_NODES: 1}
            if here := environ.get(NODENAME):
                others |= {"SLURM_NODELIST": here, STEP_NODELIST: here}
        return ranks | {name: value for name, value in others.items() if name in environ}

    def start_line(self, command: str, n: int) -> str:
        """The srun line. srun's defaults are the job's options, so the sizes are all written.

        srun ignores an --ntasks-per-node that does not fit the job's --ntasks.
        """
        nodes, tasks = self.size()
        # In a step's shell: that step holds all resources of the job.
        words = ["srun", "--overlap"] if PTY_PORT in self.environ else ["srun"]
        if n == 1 and nodes:
            words.append(f"--nodes={nodes.value} --ntasks={nodes.value} --ntasks-per-node=1")
            words += self._all_of_a_node()
        elif n == 1:
            words.append("--ntasks-per-node=1")
        else:
            words.append("--kill-on-bad-exit=1")  # no launcher ends the others when a rank fails
            if nodes and not self.has_steps:
                words.append(f"--nodes={nodes.value} --ntasks={(tasks or nodes).value}")
        return " ".join([*words, command])

    def _all_of_a_node(self) -> list[str]:
        """The options for all CPUs and devices that the job has on a node."""
        words, get = [], self.environ.get
        cpus, gpus = get(CPUS_ON_NODE, ""), get("SLURM_GPUS_ON_NODE", "")
        # With one of these set, a task may not ask for all CPUs that Slurm counts.
        is_hinted = get("SLURM_HINT") or get("SLURM_THREADS_PER_CORE")
        is_everywhere = "," not in get(JOB_CPUS_PER_NODE, ",")
        if is_everywhere and not is_hinted and reading.is_number(cpus):
            words.append(f"--cpus-per-task={cpus}")
        # --gpus is the number in all: one node may have more than another.
        if reading.is_number(gpus) and int(gpus) and not get("SLURM_GPUS"):
            words.append(f"--gpus-per-node={gpus}")
        return words


class Step(Slurm):
    """A task of srun."""

    name = "Slurm"
    kind = identity.TASKS
    needs = (JOB_ID, STEP_ID, STEP_TASKS, PROCID, LOCALID)
    knows_host = True
    rank_from = (PROCID,)
    world_size_from = (STEP_TASKS, JOB_TASKS)
    local_rank_from = (LOCALID,)
    node_rank_from = (NODEID,)
    nnodes_from = (STEP_NODES, JOB_NODES)

    def is_present(self) -> bool:
        return super().is_present() and not is_shell(self.environ)

    def why_silent(self, question: str) -> str:
        if question != "rank_0_host":
            return super().why_silent(question)
        return "with SLURM_DISTRIBUTION=arbitrary rank 0 may be on any host of the step"

    def local_world_size(self) -> identity.Fact | None:
        """The number of this node's ranks in SLURM_GTIDS, or this node's entry of the counts."""
        if ids := self.environ.get(GLOBAL_IDS, ""):
            return identity.Fact(ids.count(",") + 1, f"number of {GLOBAL_IDS}={ids}")
        counts, node = self.environ.get(STEP_TASKS_PER_NODE), self.node_rank()
        if not counts or node is None or self.environ.get(HET_SIZE):
            return None
        tasks = _read(lists.tasks_on, STEP_TASKS_PER_NODE, self.environ, node.value)
        why = f"{STEP_TASKS_PER_NODE}={counts}, entry {node.value} ({node.source})"
        return identity.Fact(tasks, why)

    def host_name(self) -> identity.Fact | None:
        return identity.text(self.environ, NODENAME)

    def rank_0_host(self) -> identity.Fact | None:
        """The host of task 0: that of node 0; None under an arbitrary distribution.

        Each component of a heterogeneous step has its own distribution, so that not all tasks know
        that of task 0. They all use node 0; task 0, which knows its own host, checks that in
        `master`.
        """
        is_arbitrary = self.environ.get("SLURM_DISTRIBUTION", "").startswith("arbitrary")
        return None if is_arbitrary and not self.environ.get(HET_SIZE) else self.node_0_host()

    def node_0_host(self) -> identity.Fact | None:
        """The host of SLURM_NODEID 0: the first of the step's list.

        In a heterogeneous step it is the first of the first component that takes part. srun of
        Slurm 22.05 writes PACK into the names of a component's variables, where srun(1) has HET.
        """
        environ = self.environ
        if not (nodes := environ.get(STEP_NODELIST)):
            return None
        size = identity.number(environ, HET_SIZE)
        in_step = set(hosts_of(STEP_NODELIST, environ)) if size else set()
        for i in range(min(size.value, MOST_GROUPS) if size else 0):
            for name in (f"{JOB_NODELIST}_PACK_GROUP_{i}", f"{JOB_NODELIST}_HET_GROUP_{i}"):
                host = next((host for host in hosts_of(name, environ) if host in in_step), "")
                if host:
                    why = f"first host of {name}={environ[name]} in {STEP_NODELIST}={nodes}"
                    return identity.Fact(host, why)
        return first_of(STEP_NODELIST, environ)

    def node_names(self) -> identity.Fact | None:
        """The names of the step's nodes."""
        nodes = hosts_of(STEP_NODELIST, self.environ)
        return identity.Fact(nodes, STEP_NODELIST) if nodes else None

    def job(self) -> identity.Fact | None:
        return job_and_step(self.environ)

    def reserved_port(self) -> identity.Fact | None:
        """The first port that Slurm has reserved for the step: `12000-12003` or `12000,12007`."""
        port = self.environ.get(RESERVED_PORTS, "").partition(",")[0].partition("-")[0]
        if not port:
            return None
        if not reading.is_number(port) or not 0 < int(port) <= values.MAX_PORT:
            raise errors.UsageError(
                f"{RESERVED_PORTS}={reading.excerpt(port)} is not a port; use --master-port N"
            )
        return identity.Fact(int(port), RESERVED_PORTS)


class Shell(Slurm):
    """A shell of a job: a person's, or a batch script."""

    name = "a shell of a Slurm job"
    kind = identity.HOSTS
    needs = (JOB_ID, JOB_NODELIST)
    has_steps = True
    job_from = (JOB_ID,)

    def is_present(self) -> bool:
        return super().is_present() and is_shell(self.environ)

    def nnodes(self) -> identity.Fact | None:
        return self.size()[0]

    def world_size(self) -> identity.Fact | None:
        return self.size()[1]

    def is_outside(self, hostname: str) -> bool:
        """Whether this shell runs on none of the job's nodes, as salloc's on a login node."""
        nodes = [] if self.environ.get(NODENAME) else hosts_of(JOB_NODELIST, self.environ)
        here = hostname.partition(".")[0]
        return bool(nodes) and here not in (node.partition(".")[0] for node in nodes)
