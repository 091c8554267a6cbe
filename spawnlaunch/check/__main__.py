"""Run on every rank; rank 0 prints the table and what is wrong. See the package's docstring."""

from spawnlaunch import finder

finder.order()

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any

from spawnlaunch import arguments, check, errors, printing
from spawnlaunch import node as nodes
from spawnlaunch.check import findings, verdicts
from spawnlaunch.check.facts import Facts, look, mask
from spawnlaunch.node import hardware

NAME = "spawnlaunch.check"
COLUMNS = ("rank", "host", "local", "device", "numa", "cpus", "cores", "memory", "omp", "loader")


def main() -> int:
    """The exit status: 1 where something is wrong, on every rank."""
    at_start = mask()
    parser = arguments.Parser(NAME, check.__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON in place of the table")
    parser.add_argument(
        "--all", action="store_true", help="measure too: devices, memory, all-reduce, disks, clocks"
    )
    options = parser.parse_args()
    try:
        if find_spec("torch") is None:
            raise errors.UsageError("torch is not installed; type pip install torch")
        _derive_world()
    except errors.UsageError as error:
        from spawnlaunch.run import shared_errors

        shared_errors.refuse(error, os.environ, NAME)
        return 2
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    node = nodes.read()
    everyone, measured = _gather(node, look(node, rank, local_rank, at_start, os.environ), options)
    found, judged = findings.findings(everyone), verdicts.verdicts(measured) if measured else []
    if rank == 0:
        lines = [*_page(everyone, found), *_lines(judged)]
        said = _as_json(everyone, found, measured, judged) if options.json else "\n".join(lines)
        if status := printing.print_page(said, NAME):
            return status
    return 1 if found or any(verdict.status == verdicts.FAIL for verdict in judged) else 0


def _derive_world() -> None:
    """Without a launcher of workers, under srun or mpirun alone, find out who we are ourselves."""
    if all(os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")):
        return
    from spawnlaunch import flags
    from spawnlaunch.world import identity, resolve

    request = flags.Request(program=flags.Program("bundled", "", ()), python=sys.executable)
    told = {name: value for name, value in os.environ.items() if name != "PET_NPROC_PER_NODE"}
    one = identity.Capacity(devices=0, cpus=1)  # who is no launcher is one rank
    resolution = resolve.resolve_world(request, told, os.uname().nodename, one)
    resolution, _ = resolve.prepare_host(resolution, os.uname().nodename)
    me = resolution.world
    os.environ.update(
        RANK=str(me.rank),
        WORLD_SIZE=str(me.world_size),
        LOCAL_RANK=str(me.local_rank),
        MASTER_ADDR=me.master_addr,
        MASTER_PORT=str(me.master_port),
        TORCHELASTIC_USE_AGENT_STORE="False",
        **resolution.exports,
    )


def _gather(
    node: hardware.Node, mine: Facts, options: argparse.Namespace
) -> tuple[list[Facts], list[dict[str, Any]]]:
    """The facts of all ranks, in their order, and what they have measured with --all."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    everyone: list[Facts] = [mine] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    measured: list[dict[str, Any]] = []
    if options.all:
        from spawnlaunch.check import measures

        measured = [{}] * dist.get_world_size()
        own = measures.measure(node, mine.rank, mine.local_rank, mine.device)
        dist.all_gather_object(measured, own)
    dist.destroy_process_group()
    return everyone, measured


def _as_json(
    everyone: Sequence[Facts],
    found: Sequence[findings.Finding],
    measured: Sequence[dict[str, Any]],
    judged: Sequence[verdicts.Verdict],
) -> str:
    said: dict[str, Any] = {
        "ranks": [facts._asdict() for facts in everyone],
        "findings": [finding._asdict() for finding in found],
    }
    if measured:
        said |= {"measured": measured, "verdicts": [verdict._asdict() for verdict in judged]}
    return json.dumps(said)


def _lines(judged: Sequence[verdicts.Verdict]) -> Iterator[str]:
    """A line for each verdict, its remedy below it."""
    if judged:
        yield ""
    width = max((len(verdict.name) for verdict in judged), default=0)
    for verdict in judged:
        yield f"{verdict.status:4}  {verdict.name.ljust(width)}  {verdict.message}"
        if verdict.remedy:
            yield f"{'':{width + 8}}{verdict.remedy}"


def _page(everyone: Sequence[Facts], found: Sequence[findings.Finding]) -> Iterator[str]:
    rows = [COLUMNS, *map(_row, everyone)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    yield ""
    for finding in found:
        yield f"{finding.rule}: {finding.message}"
        yield f"    {finding.remedy}"
    if not found:
        yield "nothing is wrong"


def _row(facts: Facts) -> tuple[str, ...]:
    same = facts.loader_cpus == facts.cpus
    return (
        str(facts.rank),
        facts.host,
        str(facts.local_rank),
        facts.device_address or "-",
        facts.numa or "-",
        facts.cpus or "any",
        str(facts.cores),
        facts.memory,
        str(facts.omp_threads),
        "same" if same else facts.loader_cpus or "any",
    )


if __name__ == "__main__":
    sys.exit(main())
