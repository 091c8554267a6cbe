"""The check on every rank; rank 0 prints the table and the faults. See HELP."""

import sys

from spawnlaunch.base import own_path

PATH = own_path.take() if __name__ == "__main__" else sys.path

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from spawnlaunch import node as nodes
from spawnlaunch.base import commands, errors
from spawnlaunch.cli import flags, values
from spawnlaunch.world import identity, resolve

if TYPE_CHECKING:
    from spawnlaunch.check.facts import Facts
    from spawnlaunch.check.rules import Verdict

NAME = "spawnlaunch check"
# Not the docstring, which python -OO leaves out.
HELP = """\
A worker program: every rank reports what it really got; rank 0 says what is wrong with it.

    spawnlaunch --nproc 8 check
    spawnlaunch --nproc 8 check --all
    srun --kill-on-bad-exit=1 --cpu-bind=none -n 16 spawnlaunch check
    torchrun --nproc-per-node 8 -m spawnlaunch.check

It runs under any launcher. It imports torch, starts a DataLoader worker and a parallel computation,
and only then looks: a mask that was right at the start may have been lost by then. It compares the
ranks' software, their speed and their clocks, too. A fault is named with its ranks and with what to
type, and the exit status is 1; load, quotas and the like are noted, and are no fault.

With --all it measures more, before a long job: how fast devices and all-reduces are, and which
limits the ranks have.
"""
RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
GLOO = "GLOO_SOCKET_IFNAME"
COLUMNS = ("rank", "host", "local", "device", "numa", "cpus", "cores", "memory", "omp", "loader")


def main() -> int:
    """Run the check; the exit status is 1 on every rank where something is wrong."""
    at_start = frozenset(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ())
    parser = commands.Parser(NAME, HELP)
    parser.add_argument("--json", action="store_true", help="print JSON in place of the table")
    parser.add_argument(
        "--all", action="store_true", help="measure more: devices, all-reduce, limits"
    )
    parser.add_argument(
        "--warn-only", action="store_true", help="end with status 0 whatever is wrong"
    )
    options = parser.parse_args()
    try:
        if find_spec("torch") is None:
            raise errors.UsageError("torch is not installed; run pip install torch")
        _derive_world()
    except errors.UsageError as error:
        from spawnlaunch.run import shared_errors

        shared_errors.refuse(error, os.environ, NAME)
        return 2
    from spawnlaunch.check import facts, rules  # which import torch: the mask was read before

    node = nodes.read()
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    mine = facts.derive(node, rank, local_rank, facts.look(at_start), os.environ)
    try:
        everyone, measured = _gather(node, mine, with_all=options.all)
    except RuntimeError as error:  # torch.distributed's
        line = str(error).partition("\n")[0]
        commands.print_error(f"rank {rank} could not measure, or send its figures: {line}", NAME)
        return 1
    verdicts = [*rules.of_bindings(everyone), *rules.of_measured(measured)]
    if rank == 0:
        shown = [verdict for verdict in verdicts if options.all or verdict.status != rules.OK]
        page = "\n".join(_page(everyone, shown))
        if options.json:
            ranks = ({**m, **f._asdict()} for f, m in zip(everyone, measured, strict=True))
            page = json.dumps({"ranks": [*ranks], "verdicts": [v._asdict() for v in verdicts]})
        if status := commands.print_page(page, NAME):
            return status
    has_failed = any(verdict.status == rules.FAIL for verdict in verdicts)
    return int(has_failed and not options.warn_only)


def _derive_world() -> None:
    """Without a launcher of workers, under srun or mpirun alone, derive this rank's world."""
    if all(os.environ.get(name) for name in RANKS):
        identity.number(os.environ, *RANKS)
        identity.number(os.environ, "MASTER_PORT", most=values.MAX_PORT)
        if missing := [name for name in identity.MASTER if not os.environ.get(name)]:
            raise errors.UsageError(
                f"{', '.join(RANKS)} are set and {' and '.join(missing)} not, where ranks meet; "
                "export MASTER_ADDR=HOST MASTER_PORT=PORT in each, with rank 0's host and a "
                f"free port there, or unset {' '.join(RANKS)}"
            )
        return
    request = flags.Request(program=flags.Program("bundled", "", ()), python=sys.executable)
    variables = {name: value for name, value in os.environ.items() if name != "PET_NPROC_PER_NODE"}
    capacity = identity.Capacity(devices=0, cpus=1)  # a process without a launcher is one rank
    resolution = resolve.resolve_world(request, variables, os.uname().nodename, capacity)
    resolution, _ = resolve.prepare_host(resolution, os.uname().nodename)
    me = resolution.world
    os.environ.update(
        {name: str(getattr(me, name.lower())) for name in (*RANKS, *identity.MASTER)},
        TORCHELASTIC_USE_AGENT_STORE="False",
        **resolution.exports,
    )


def _gather(
    node: nodes.Node, mine: "Facts", *, with_all: bool
) -> tuple[list["Facts"], list[dict[str, Any]]]:
    """The facts of all ranks, in their order, and the ranks' measurements."""
    import torch.distributed as dist

    from spawnlaunch.check import measurements, rules

    environ = dict(os.environ)
    if not rules.are_there(GLOO, environ.get(GLOO) or "lo", measurements.interfaces()):
        os.environ.pop(GLOO, None)  # a verdict says so; without it the ranks can meet
    dist.init_process_group("gloo")
    measured: dict[str, Any] = {"rank": mine.rank, "host": mine.host}
    measured |= measurements.measure(node, mine, environ)
    if with_all:
        measured |= measurements.measure_all(mine.rank, mine.local_rank)
    gathered = measurements.of_each((mine, measured))
    # From now on each rank ends by itself, though others have ended with a fault before it.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    dist.barrier()
    dist.destroy_process_group()
    return [its for its, _ in gathered], [its for _, its in gathered]


def _page(everyone: Sequence["Facts"], shown: Sequence["Verdict"]) -> Iterator[str]:
    """The table, a line for each verdict, its remedy below it, and the number of faults."""
    rows: list[tuple[str, ...]] = [COLUMNS]
    for facts in everyone:
        device, numa, cpus = facts.device_address or "-", facts.numa or "-", facts.cpus or "any"
        loader = "same" if facts.loader_cpus == facts.cpus else facts.loader_cpus or "any"
        rows.append((f"{facts.rank}", facts.host, f"{facts.local_rank}", device, numa, cpus,
                     f"{facts.cores}", facts.memory, f"{facts.omp_threads}", loader))  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    yield ""
    width = max((len(verdict.name) for verdict in shown), default=0)
    for verdict in shown:
        yield f"{verdict.status:4}  {verdict.name.ljust(width)}  {verdict.message}"
        if verdict.remedy:
            yield f"{'':{width + 8}}{verdict.remedy}"
    if shown:
        yield ""
    counts = Counter(verdict.status for verdict in shown)
    wrong = [(counts["fail"], "fault"), (counts["warn"], "warning")]
    summary = " and ".join(f"{n} {noun}{'s' * (n > 1)}" for n, noun in wrong if n)
    yield summary or "No problems found."


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        sys.path[:] = PATH
