"""Run on every rank; rank 0 prints the table and what is wrong. See the package's docstring."""

from spawnlaunch import finder

finder.order()

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any

from spawnlaunch import arguments, check, errors, printing, values
from spawnlaunch import node as nodes
from spawnlaunch.check import findings, verdicts
from spawnlaunch.check.facts import Facts, look, mask
from spawnlaunch.check.verdict import FAIL, OK, WARN, Verdict
from spawnlaunch.node import hardware

NAME = "spawnlaunch.check"
RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
GLOO = "GLOO_SOCKET_IFNAME"
COLUMNS = ("rank", "host", "local", "device", "numa", "cpus", "cores", "memory", "omp", "loader")


def main() -> int:
    """The exit status: 1 where something is wrong, on every rank."""
    at_start = mask()
    parser = arguments.Parser(NAME, check.__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON in place of the table")
    parser.add_argument(
        "--all",
        action="store_true",
        help="measure more: devices, memory, all-reduce, disks, limits, and what of this site "
        "would stop a job of a thousand nodes",
    )
    parser.add_argument(
        "--warn-only", action="store_true", help="end with status 0 whatever is wrong"
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
    mine = look(node, rank, local_rank, at_start, os.environ)
    try:
        everyone, measured = _gather(node, mine, options)
    except RuntimeError as error:  # torch.distributed's
        said = str(error).partition("\n")[0]
        printing.print_error(f"rank {rank} could not measure, or not tell the others: {said}", NAME)
        return 1
    found = [*findings.findings(everyone), *verdicts.verdicts(measured)]
    if rank == 0:
        said = _as_json(everyone, measured, found) if options.json else ""
        page = said or "\n".join(_page(everyone, found, with_all=options.all))
        if status := printing.print_page(page, NAME):
            return status
    has_failed = any(verdict.status == FAIL for verdict in found)
    return int(has_failed and not options.warn_only)


def _derive_world() -> None:
    """Without a launcher of workers, under srun or mpirun alone, find out who we are ourselves."""
    from spawnlaunch.world import identity, resolve

    if all(os.environ.get(name) for name in RANKS):
        for name in RANKS:
            identity.number(name, os.environ)
        identity.number("MASTER_PORT", os.environ, values.MAX_PORT)
        if missing := [name for name in identity.MASTER if not os.environ.get(name)]:
            raise errors.UsageError(
                f"{', '.join(RANKS)} are set and {' and '.join(missing)} not, where ranks meet; "
                "type export MASTER_ADDR=HOST MASTER_PORT=PORT in each, with rank 0's host and a "
                f"free port there, or unset {' '.join(RANKS)}"
            )
        return
    from spawnlaunch import flags

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
    """The facts of all ranks, in their order, and what they have measured."""
    import torch.distributed as dist

    from spawnlaunch.check import measures

    environ = dict(os.environ)
    chosen = environ.get(GLOO) or "lo"
    if not verdicts.are_there(GLOO, chosen, measures.interfaces()):
        os.environ.pop(GLOO, None)  # which is said; without it there is somebody to say it to
    dist.init_process_group("gloo")
    everyone: list[Facts] = [mine] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    measured: list[dict[str, Any]] = [{}] * dist.get_world_size()
    own = measures.measure(node, mine, environ)
    if options.all:
        own |= measures.measure_all(mine.rank, mine.local_rank)
    dist.all_gather_object(measured, own)
    dist.destroy_process_group()
    return everyone, measured


def _as_json(
    everyone: Sequence[Facts], measured: Sequence[dict[str, Any]], found: Sequence[Verdict]
) -> str:
    """What is wrong is among "findings", and all that was looked at among "verdicts"."""
    wrong = [each for each in found if each.status in (WARN, FAIL)]
    return json.dumps({
        "ranks": [facts._asdict() for facts in everyone],
        "findings": [{"rule": each.name, **each._asdict()} for each in wrong],
        "measured": measured,
        "verdicts": [verdict._asdict() for verdict in found],
    })  # fmt: skip


def _page(everyone: Sequence[Facts], found: Sequence[Verdict], *, with_all: bool) -> Iterator[str]:
    """The table, a line for each verdict, its remedy below it, and what they come to."""
    rows = [COLUMNS, *map(_row, everyone)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    yield ""
    told = [verdict for verdict in found if with_all or verdict.status != OK]
    width = max((len(verdict.name) for verdict in told), default=0)
    for verdict in told:
        yield f"{verdict.status:4}  {verdict.name.ljust(width)}  {verdict.message}"
        if verdict.remedy and verdict.status != OK:
            yield f"{'':{width + 8}}{verdict.remedy}"
    if told:
        yield ""
    counts = Counter(verdict.status for verdict in found)
    wrong = [(FAIL, "fault"), (WARN, "warning")]
    said = [f"{counts[how]} {what}{'s' * (counts[how] > 1)}" for how, what in wrong if counts[how]]
    yield " and ".join(said) or "nothing is wrong"


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
