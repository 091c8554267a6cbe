"""Random Slurm jobs: what srun gives each of a step's tasks, and what users export beside it.

The variables are those of srun 22.05, as recorded in every layout here: nodes of a job that a step
does not use, uneven nodes, block, cyclic and arbitrary distributions, heterogeneous steps and steps
of one component. Then exports, each in one of three manners: once, for the whole job, with what the
variables are in a batch script; in every task, by a wrapper that is right; or in some tasks only.
"""

import random
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

Environ = dict[str, str]
MASTER = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")


class Task(NamedTuple):
    """A task of a step: its environment, what srun gave it where a parent shows that, its node."""

    environ: Environ
    given: Environ | None
    hostname: str
    devices: int  # on its node


class Job(NamedTuple):
    """A step's tasks in the order of ranks, and how each launches."""

    tasks: list[Task]
    flags: list[str]
    nproc: int | str | None  # of --nproc, where there is one launcher per node
    says: str  # for the report of a failure


class Component(NamedTuple):
    """Of a heterogeneous step; other steps have one."""

    hosts: list[str]  # one for each task, in the order of ranks
    nodes: list[str]  # in Slurm's order
    distribution: str  # "" where none was asked for


def random_job(generator: random.Random, directory: Path) -> Job:
    """One job; `directory` is for its host file."""
    names = sorted(random_names(generator))
    count = generator.choice([1, 1, 1, 2, 3]) if len(names) > 2 else 1
    one_per_node = generator.random() < 0.3
    mixed = generator.sample(names, len(names))
    shares = [sorted(mixed[i::count]) for i in range(count)]
    components = [random_component(generator, share, one_per_node) for share in shares]
    if generator.random() < 0.2:
        components = components[:1]  # a step of some of the job's nodes
    base = step_environs(generator, names, components, directory)
    nproc = generator.choice([1, 2, 3, 4, "gpu", "gpu"]) if one_per_node else None
    hosts = [host for component in components for host in component.hosts]
    domain = generator.choice(["", "", ".cluster.example"])
    devices = random_devices(generator, base, set(hosts))
    tasks, how = exported(generator, base, hosts, nproc if isinstance(nproc, int) else 0)
    typed = [["--master-port", "23456"], ["--master-addr", hosts[0]], ["--master-suffix", "i"]]
    flags = generator.choice([[], [], [], [], *typed])
    said = f"{components} {flags} --nproc {nproc} {devices}; exports {how}"
    named = [
        Task(environ, given, host + domain, devices[host])
        for (environ, given), host in zip(tasks, hosts, strict=True)
    ]
    return Job(named, flags, nproc, said)


def random_names(generator: random.Random) -> list[str]:
    prefix = generator.choice(["node", "n", "jwb", "gpu-a", "nid00", "x1000c0s"])
    width = generator.choice([1, 1, 4])
    numbers = generator.sample(range(12), generator.randint(1, 5))
    return [f"{prefix}{number:0{width}d}" for number in numbers]


def random_component(generator: random.Random, nodes: list[str], one_per_node: bool) -> Component:
    each = [1 if one_per_node else generator.choice([1, 1, 2, 4]) for _ in nodes]
    slots = [[node] * tasks for node, tasks in zip(nodes, each, strict=True)]
    distribution = generator.choice(["", "", "block", "cyclic", "arbitrary"])
    hosts = [host for slot in slots for host in slot]
    if distribution == "cyclic":
        rounds = range(max(each))
        hosts = [slot[i] for i in rounds for slot in slots if i < len(slot)]
    if distribution == "arbitrary":
        generator.shuffle(hosts)
    return Component(hosts, nodes, distribution)


def step_environs(
    generator: random.Random, names: list[str], components: list[Component], directory: Path
) -> list[Environ]:
    """What srun gives to the tasks."""
    hosts = [host for component in components for host in component.hosts]
    nodes = sorted({node for component in components for node in component.nodes})
    counts = [hosts.count(node) for node in nodes]
    in_order = [node for component in components for node in component.nodes]
    job = generator.randint(1, 10**6)
    common = {
        "SLURM_JOB_ID": str(job),
        "SLURM_STEP_ID": str(generator.randint(0, 20)),
        "SLURM_STEP_NUM_TASKS": str(len(hosts)),
        "SLURM_STEP_NUM_NODES": str(len(nodes)),
        "SLURM_STEP_NODELIST": compressed(generator, nodes),
        "SLURM_STEP_TASKS_PER_NODE": folded(counts),
        "SLURM_TASKS_PER_NODE": folded(counts),
        "SLURM_NTASKS": str(len(hosts)),
        "SLURM_NPROCS": str(len(hosts)),
        "SLURM_JOB_NODELIST": compressed(generator, names),
        "SLURM_JOB_NUM_NODES": str(len(names)),
    }
    if generator.random() < 0.1:
        common["SLURM_NTASKS"] = str(len(hosts) + 3)  # srun --preserve-env in a larger job
    if generator.random() < 0.1:
        common["SLURM_STEP_RESV_PORTS"] = "21000-21003"
    if len(components) > 1:
        common |= heterogeneous(generator, components, job)
    common |= host_file(generator, hosts, components, directory)
    distributions = [part.distribution for part in components for _ in part.hosts]
    environs = []
    for rank, host in enumerate(hosts):
        here = [r for r, other in enumerate(hosts) if other == host]
        environ = {
            **common,
            "SLURM_PROCID": str(rank),
            "SLURM_LOCALID": str(here.index(rank)),
            "SLURM_NODEID": str(in_order.index(host)),
            "SLURM_GTIDS": ",".join(map(str, here)),
            "SLURMD_NODENAME": host,
        }
        if distributions[rank]:
            environ["SLURM_DISTRIBUTION"] = distributions[rank]
        environs.append(environ)
    return environs


def heterogeneous(generator: random.Random, components: list[Component], job: int) -> Environ:
    """Of which srun 22.05 says PACK, and its manual page HET."""
    word = generator.choice(["PACK", "HET"])
    found = {"SLURM_HET_SIZE": str(len(components))}
    for i, component in enumerate(components):
        found[f"SLURM_JOB_ID_{word}_GROUP_{i}"] = str(job + i)
        found[f"SLURM_JOB_NODELIST_{word}_GROUP_{i}"] = compressed(generator, component.nodes)
    return found


def host_file(
    generator: random.Random, hosts: list[str], components: list[Component], directory: Path
) -> Environ:
    """Of an arbitrary distribution: the file that srun went by, none, or one that -w overruled."""
    if components[0].distribution == "arbitrary" and len(components) == 1:
        kind = generator.choice(["right", "right", "none", "overruled", "other"])
        if kind == "none":
            return {}
        if kind == "overruled":
            hosts = generator.sample(hosts, len(hosts))
        if kind == "other":
            hosts = generator.choices(hosts, k=len(hosts))
        file = directory / "hosts"
        file.write_text("".join(f"{host}\n" for host in hosts))
        return {"SLURM_HOSTFILE": str(file)}
    return {}


def compressed(generator: random.Random, nodes: list[str]) -> str:
    """As Slurm writes a list, in brackets or not."""
    prefix = nodes[0].rstrip("0123456789")
    if len(nodes) == 1 or generator.random() < 0.5:
        return ",".join(nodes)
    return f"{prefix}[{','.join(node[len(prefix) :] for node in nodes)}]"


def folded(counts: list[int]) -> str:
    runs = [(count, len(list(same))) for count, same in groupby(counts)]
    return ",".join(str(n) if times == 1 else f"{n}(x{times})" for n, times in runs)


def random_devices(
    generator: random.Random, base: list[Environ], nodes: set[str]
) -> dict[str, int]:
    """On each node; what --gpus-per-node has said is the same on all."""
    each = generator.randint(1, 8)
    if generator.random() < 0.5:
        for environ in base:
            environ["SLURM_GPUS_PER_NODE"] = generator.choice([str(each), f"a100:{each}"])
        return dict.fromkeys(nodes, each)
    return {node: generator.choice([each, 1]) for node in sorted(nodes)}


def exported(
    generator: random.Random, base: list[Environ], hosts: list[str], nproc: int
) -> tuple[list[tuple[Environ, Environ | None]], dict[str, str]]:
    """(environment, what srun gave where that can be seen) of each task, and what was exported.

    A wrapper that ends in exec leaves nothing to see. The master that it sets must be the same in
    all tasks: nobody can know otherwise.
    """
    execs = generator.random() < 0.5
    given = [dict(environ) for environ in base]
    tasks = [dict(environ) for environ in base]
    how = {"wrapper": "exec" if execs else "below a shell"}
    addr, port = random_addr(generator, hosts), str(generator.randint(1024, 65535))
    for name, right in rights(nproc, addr, port).items():
        manner = generator.choice(["", "", "job", "each", "some"])
        if manner == "some" and execs and name in MASTER:
            manner = "each"
        if not manner:
            continue
        how[name] = f"{manner}: {right(base[0])}"
        everywhere = in_batch_script(base[0])
        chosen = generator.sample(range(len(base)), generator.randint(1, len(base)))
        for rank, (environ, before) in enumerate(zip(tasks, given, strict=True)):
            if manner == "job":
                environ[name] = before[name] = right(everywhere)
            elif manner == "each":
                environ[name] = right(base[rank])
            elif rank in chosen:
                mine = name in MASTER and generator.random() < 0.5
                environ[name] = str(generator.randint(1024, 9999)) if mine else right(base[rank])
    shown = [None if execs else environ for environ in given]
    return list(zip(tasks, shown, strict=True)), how


def in_batch_script(environ: Environ) -> Environ:
    """The variables of a batch script, which runs on the job's first node."""
    return {**environ, "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}


def rights(nproc: int, addr: str, port: str) -> dict[str, Callable[[Environ], str]]:
    """What a user writes for each variable, in a shell with these variables of Slurm."""

    def here(environ: Environ) -> str:
        return str(nproc or len(environ["SLURM_GTIDS"].split(",")))

    return {
        "RANK": lambda environ: environ["SLURM_PROCID"],
        "WORLD_SIZE": lambda environ: environ["SLURM_NTASKS"],
        "LOCAL_RANK": lambda environ: environ["SLURM_LOCALID"],
        "LOCAL_WORLD_SIZE": here,
        "NODE_RANK": lambda environ: environ["SLURM_NODEID"],
        "GROUP_RANK": lambda environ: environ["SLURM_NODEID"],
        "GROUP_WORLD_SIZE": lambda environ: environ["SLURM_STEP_NUM_NODES"],
        "MASTER_ADDR": lambda _: addr,
        "MASTER_PORT": lambda _: port,
        "TORCHELASTIC_RUN_ID": lambda environ: environ["SLURM_JOB_ID"],
        "TORCHELASTIC_RESTART_COUNT": lambda _: "0",
        "TORCHELASTIC_USE_AGENT_STORE": lambda environ: str(environ["SLURM_PROCID"] == "0"),
    }


def random_addr(generator: random.Random, hosts: list[str]) -> str:
    """As scontrol, hostname or a site's page would have it, right or wrong."""
    host = generator.choice([hosts[0], hosts[0], hosts[0], hosts[-1], min(hosts)])
    spelling = generator.choice(["{}", "{}", "{}i", "{}-ib", "ib-{}", "{}.cluster.example"])
    other = generator.choice(["localhost", "127.0.0.1", "10.1.2.3", "fd00::7", "elsewhere"])
    return generator.choice([spelling.format(host), spelling.format(host), other])
