"""A live table of the launches of this user on this machine: what every rank does now.

    python -m spawnlaunch.top            until q is typed; r, c, m, ... sort, s shows stacks
    python -m spawnlaunch.top --once     one look, as text; with --json for programs
    python -m spawnlaunch.top train.py   launches whose name or command line has that in it
    srun --jobid J --overlap python -m spawnlaunch.top --once     all nodes of a job in one table

It finds all your launches on this machine: of spawnlaunch, with a launcher or one task per rank,
and of torchrun. In a Slurm step the first node prints the table of all nodes, and names each node
that sent nothing (status 1).
"""

from __future__ import annotations

from spawnlaunch import finder

finder.order()

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence

from spawnlaunch import arguments, errors, printing
from spawnlaunch.watch import devices, kept, notes, sample, step, table, waiting

NAME = "spawnlaunch.top"
BETWEEN_S = 0.5  # the two looks of --once
WIDTH = 160  # of --once where stdout is no terminal


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status."""
    parser = arguments.Parser(NAME, __doc__)
    parser.add_argument("--once", action="store_true", help="look once, print, and end")
    parser.add_argument("--json", action="store_true", help="with --once: JSON, one object a line")
    parser.add_argument(
        "--every", type=_seconds, default=1.0, metavar="SECONDS", help="between looks; default 1"
    )
    names = [column.name for column in table.COLUMNS]
    one_of = f"one of {', '.join(names)}".replace("%", "%%")
    parser.add_argument("--sort", choices=names, default="rank", metavar="COLUMN", help=one_of)
    parser.add_argument(
        "words", nargs="?", default="", metavar="WORDS", help="part of a launch's name or command"
    )
    options = parser.parse_args(argv)
    try:
        if options.once or options.json:
            return _once(options)
        return _live(sample.Sampler(devices.Meter(), words=options.words), options)
    except OSError as error:
        from spawnlaunch.run import refused

        line, status = refused.fault(error)
        printing.print_error(line, NAME)
        return status


def _once(options: argparse.Namespace) -> int:
    waits = waiting.Inquiry(BETWEEN_S, at_once=True)
    try:
        mine = step.of(os.environ)
    except errors.UsageError as error:
        printing.print_error(str(error), NAME)
        return 2
    if mine is None:
        sampler = sample.Sampler(devices.Meter(), words=options.words)
        return _print(_looked(sampler, waits), waits, options)
    if not mine.is_first_here:
        return 0  # that one looks for all tasks of this node
    samples = _looked(sample.Sampler(devices.Meter(), mine.has, options.words), waits)
    found = step.gather(mine, samples, waits.answers)
    status = 0
    if found.seen:
        waits.judge(found.seen.answers, found.seen.uncertain_s)
        status = _print(found.seen.samples, waits, options)
    if found.complaint:
        printing.print_error(found.complaint, NAME, "warning")
        return status or 1
    return status


def _looked(sampler: sample.Sampler, waits: waiting.Inquiry) -> list[sample.Sample]:
    """A sample. It takes two looks, as use is the difference between them."""
    waits.ask(sampler.sample())
    time.sleep(BETWEEN_S)
    waits.finish()
    return sampler.sample()


def _print(
    samples: Sequence[sample.Sample], waits: waiting.Inquiry, options: argparse.Namespace
) -> int:
    samples = waits.shown(samples)
    histories = notes.Histories()
    histories.add(samples)
    found = notes.together(waits.findings(), histories.notes(), kept.findings(samples))
    if options.json:
        rows = [one.as_dict() for one in samples]
        rows += [{"launch": name, **one._asdict()} for name in found for one in found[name]]
        return printing.print_page("\n".join(map(json.dumps, rows)), NAME) if rows else 0
    try:
        width = os.get_terminal_size(1).columns
    except OSError:
        width = WIDTH
    lines = table.table(samples, found, max(width, 40), sort=options.sort)
    return printing.print_page("\n".join(lines), NAME)


def _live(sampler: sample.Sampler, options: argparse.Namespace) -> int:
    if not (sys.stdin and sys.stdin.isatty() and sys.stdout and sys.stdout.isatty()):
        printing.print_error("this is no terminal; type --once", NAME)
        return 2
    try:
        from spawnlaunch.watch import screen
    except ImportError as error:
        printing.print_error(
            f"{error.name} is not installed; type pip install 'spawnlaunch[top]', or --once", NAME
        )
        return 2
    return screen.show(sampler, options.every, options.sort)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 0.1 and 3600; type 1")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
