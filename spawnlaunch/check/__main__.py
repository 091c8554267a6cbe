"""Run on every rank; rank 0 prints the table and what is wrong. See the package's docstring."""

import os
import sys

# With -m the working directory comes first, and a json.py there would be taken for Python's.
try:
    if sys.path[0] in ("", os.getcwd()):
        sys.path.append(sys.path.pop(0))
except FileNotFoundError:
    pass  # it has been deleted, and Python has not put it there

import argparse
import json
from collections.abc import Iterator, Sequence
from typing import NoReturn

from spawnlaunch import node as nodes
from spawnlaunch.check.facts import Facts, look, mask
from spawnlaunch.check.findings import Finding, findings
from spawnlaunch.errors import UsageError
from spawnlaunch.printing import print_error, print_page

NAME = "spawnlaunch.check"
COLUMNS = ("rank", "host", "local", "device", "numa", "cpus", "cores", "memory", "omp", "loader")


def main() -> int:
    """The exit status: 1 where something is wrong, on every rank."""
    at_start = mask()
    parser = _Parser(prog=f"python -m {NAME}", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON in place of the table")
    options = parser.parse_args()
    try:
        _derive_world()
    except UsageError as error:
        print_error(str(error), NAME)
        return 2
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    everyone = _gather(look(nodes.read(), rank, local_rank, at_start, os.environ))
    found = findings(everyone)
    if rank == 0:
        said = _as_json(everyone, found) if options.json else "\n".join(_page(everyone, found))
        if status := print_page(said, NAME):
            return status
    return 1 if found else 0


class _Parser(argparse.ArgumentParser):
    def print_help(self, _: object = None) -> NoReturn:
        raise SystemExit(print_page(self.format_help(), NAME))


def _derive_world() -> None:
    """Without a launcher of workers, under srun or mpirun alone, find out who we are ourselves."""
    if all(os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")):
        return
    from spawnlaunch.request import Program, Request
    from spawnlaunch.world.model import Capacity
    from spawnlaunch.world.resolve import resolve_world, settle

    request = Request(program=Program("bundled", "", ()), python=sys.executable)
    told = {name: value for name, value in os.environ.items() if name != "PET_NPROC_PER_NODE"}
    one = Capacity(devices=0, cpus=1)  # who is no launcher is one rank
    resolution = resolve_world(request, told, os.uname().nodename, one)
    resolution, _ = settle(resolution, os.environ, os.uname().nodename)
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


def _gather(mine: Facts) -> list[Facts]:
    """The facts of all ranks, in their order."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    everyone: list[Facts] = [mine] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    dist.destroy_process_group()
    return everyone


def _as_json(everyone: Sequence[Facts], found: Sequence[Finding]) -> str:
    return json.dumps(
        {
            "ranks": [facts.as_dict() for facts in everyone],
            "findings": [finding._asdict() for finding in found],
        }
    )


def _page(everyone: Sequence[Facts], found: Sequence[Finding]) -> Iterator[str]:
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
