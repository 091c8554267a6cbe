"""Take this rank's part of one sample, which all participating ranks begin together."""

import os
import time
from typing import NamedTuple

import torch
import torch.distributed as dist

from spawnlaunch.base import cpuset
from spawnlaunch.bench import (
    agree,
    bench_request,
    effort,
    forked_sample,
    launcher_arms,
    rank_group,
    workloads,
)
from spawnlaunch.bench.here import Part, RankOnNode
from spawnlaunch.bench.workloads import timing
from spawnlaunch.world import host


class Participant(NamedTuple):
    """The options, node and group with which this rank takes part."""

    options: bench_request.BenchRequest
    here: RankOnNode
    group: rank_group.RankGroup
    agreed: agree.Agreed


def take(
    workload: workloads.Workload, me: Participant, arm: str, left_s: float
) -> forked_sample.Sample | None:
    """Take a sample of an arm, ended after rank 0's `left_s`; None if this rank has no part."""
    group, part = me.group, me.agreed.parts.get(arm)
    key = f"sample {group.count}"
    until = time.monotonic() + group.tell(left_s)

    def stopped() -> bool:
        return time.monotonic() > until or group.has_failed()

    if workload.name == workloads.COMMAND:
        return _of_command(me, part, arm, stopped)
    if part is None:
        return None
    return forked_sample.of_workload(
        part.binding,
        lambda watch: _bundled(workload, me, part, key, watch),
        stopped,
        used_cpus(me, arm),
    )


def used_cpus(me: Participant, arm: str) -> cpuset.CpuSet:
    """The CPUs of all ranks of an arm on this node; processes on other CPUs do not disturb them."""
    its = next(each for each in me.agreed.result.arms if each.name == arm)
    here = [rank.cpus for rank in its.ranks if rank.host == me.here.view.host]
    if not all(here):
        return me.here.view.allowed
    return cpuset.EMPTY.union(*map(cpuset.parse, here))


def _of_command(
    me: Participant, part: Part | None, arm: str, stopped: forked_sample.Stopped
) -> forked_sample.Sample | None:
    """Take a sample of the command, for which rank 0 holds a free port as MASTER_PORT."""
    held = host.hold_free_port() if me.group.rank == 0 else None
    port = me.group.tell(held.port if held else 0)
    try:
        if part is None:
            return None
        words, environ = me.options.command, command_environment(part, port, me.here.environ)
        if part.request.launcher:
            words = launcher_arms.words(arm, int(me.options.nproc or 1), port, words)
            environ = launcher_arms.shell(me.here.environ, me.options.omp_threads)
        return forked_sample.of_command(
            words, part.binding, environ, me.options.metric, stopped, used_cpus(me, arm)
        )
    finally:
        if held:
            held.lock.close()


def command_environment(part: Part, port: int, environ: forked_sample.Environ) -> dict[str, str]:
    """The rank's environment, but a port of the sample's own: the bench listens on the rank's."""
    own = {"MASTER_PORT": port, "OMP_NUM_THREADS": part.binding.threads}
    own |= {"TORCHELASTIC_USE_AGENT_STORE": False}
    own |= {"RANK": part.rank, "WORLD_SIZE": part.size, "LOCAL_WORLD_SIZE": part.local_size}
    own |= {"ROLE_RANK": part.rank, "ROLE_WORLD_SIZE": part.size}
    return {**environ, **{name: str(value) for name, value in own.items()}, **dict(part.environ)}


def _bundled(
    workload: workloads.Workload, me: Participant, part: Part, key: str, watch: effort.Watch
) -> dict[str, float]:
    """Measure a bundled workload in the sample's process, which joins those of other ranks."""
    environ = me.here.environ
    os.environ.update(dict(part.environ))
    device = me.agreed.device if workload.name in workloads.ON_DEVICES else None
    threads = part.binding.threads
    rank = timing.Rank(
        rank=part.rank,
        size=part.size,
        local_rank=me.here.view.local_rank,
        local_size=part.local_size,
        threads=threads,
        device=torch.device("cpu") if device is None else torch.device("cuda", device),
        seconds=me.options.seconds,
        watch=watch,
        loader_workers=part.loader_workers,
    )
    on_device = device is not None
    if on_device:
        torch.cuda.set_device(rank.device)
    if rank.size > 1:
        dist.init_process_group(
            "nccl" if on_device else "gloo",
            store=rank_group.connect(environ["MASTER_ADDR"], int(environ["MASTER_PORT"]), key),
            rank=rank.rank,
            world_size=rank.size,
            device_id=rank.device if on_device else None,
        )
    values: dict[str, float] = workloads.measure_of(workload.name)(rank)
    rank.barrier()  # a rank that leaves first would cut the others off
    return values
