"""The live table of all ranks; see HELP."""

import sys

from spawnlaunch.base import own_path

PATH = own_path.take() if __name__ == "__main__" else sys.path

import argparse
import json
import os
import time
from collections.abc import Sequence

from spawnlaunch.base import commands, errors, say
from spawnlaunch.watch import device_use, notes, rank_table, step, usage, waiting

NAME = "spawnlaunch top"
# Not the docstring, which python -OO leaves out.
HELP = """A live table of the launches of this user on this machine: what every rank does now.

    spawnlaunch top            until q is pressed; h shows the columns, s stacks
    spawnlaunch top --once     one look, as text; with --json for programs
    spawnlaunch top train.py   launches whose name or command line has that in it
    srun --jobid J --overlap spawnlaunch top --once     all nodes of a job in one table

It finds all your launches on this machine: of spawnlaunch, with a launcher or one task per rank,
and of torchrun. In a Slurm step the first task prints the table of all nodes, and names each
node that sent nothing (status 1).
"""
BETWEEN_S = 0.5  # the two looks of --once
WIDTH = 160  # of --once where stdout is no terminal


def main(argv: Sequence[str] | None = None) -> int:
    """Show the table; the result is the exit status."""
    parser = commands.Parser(NAME, HELP)
    parser.add_argument("--once", action="store_true", help="look once, print, and end")
    parser.add_argument("--json", action="store_true", help="with --once: JSON, one object a line")
    parser.add_argument(
        "--every", type=_seconds, default=1.0, metavar="SECONDS", help="between looks; default 1"
    )
    parser.add_argument("--of-a-node", action="store_true", help=argparse.SUPPRESS)
    names = [column.name for column in rank_table.COLUMNS]
    choices = f"one of {', '.join(names)}".replace("%", "%%")
    parser.add_argument("--sort", choices=names, default="rank", metavar="COLUMN", help=choices)
    parser.add_argument(
        "words", nargs="?", default="", metavar="WORDS", help="part of a launch's name or command"
    )
    options = parser.parse_args(argv)
    try:
        if options.once or options.json:
            return _once(options)
        return _live(usage.Sampler(device_use.Meter(), words=options.words), options)
    except OSError as error:
        line, status = say.describe_fatal(error)
        commands.print_error(line, NAME)
        return status


def _once(options: argparse.Namespace) -> int:
    waits = waiting.Inquiry(BETWEEN_S, at_once=True)
    try:
        mine = step.of(os.environ)
    except errors.UsageError as error:
        commands.print_error(str(error), NAME)
        return 2
    if mine and not (mine.is_first or options.of_a_node):
        return 0  # the first task has all nodes asked
    complaint = ""
    if mine and len(mine.nodes) > 1 and not options.of_a_node:
        program = (sys.executable, "-m", "spawnlaunch.top")
        command = [*program, "--once", "--of-a-node", "--", options.words]
        try:
            collected, complaint = step.gather(mine, command)
        except OSError as error:
            collected, complaint = None, f"cannot start srun: {error.strerror}"
        if collected:
            waits.judge(collected.answers, collected.uncertain_s)
            return _print(collected.samples, waits, options) or _complained(complaint)
        complaint = f"{complaint}; this is {mine.here} alone"
    is_in_step = mine.has if mine else (lambda _: True)
    sampler = usage.Sampler(device_use.Meter(), is_in_step, options.words)
    waits.start_if_due(sampler.sample())  # two samples, as use is the difference between them
    time.sleep(BETWEEN_S)
    waits.finish()
    samples = sampler.sample()
    if mine:
        collected = step.by_job(samples, waits.answers)
        if options.of_a_node:
            step.report(mine, collected)
            return 0
        waits.judge(collected.answers)
        samples = collected.samples
    return _print(samples, waits, options) or _complained(complaint)


def _complained(complaint: str) -> int:
    """Print the complaint, if there is one; the result is the exit status."""
    if complaint:
        commands.print_error(complaint, NAME, "warning")
    return int(bool(complaint))


def _print(
    samples: Sequence[usage.Sample], waits: waiting.Inquiry, options: argparse.Namespace
) -> int:
    samples = waits.shown(samples)
    histories = notes.Histories()
    histories.add(samples)
    notes_by_launch = notes.merged(waits.findings(), histories.notes())
    if options.json:
        rows = [row.as_dict() for row in samples]
        rows += [
            {"launch": name, **row._asdict()}
            for name in notes_by_launch
            for row in notes_by_launch[name]
        ]
        return commands.print_page("\n".join(map(json.dumps, rows)), NAME) if rows else 0
    try:
        width = os.get_terminal_size(1).columns
    except OSError:
        width = WIDTH
    lines = rank_table.table(samples, notes_by_launch, max(width, 40), sort=options.sort)
    return commands.print_page("\n".join(lines), NAME)


def _live(sampler: usage.Sampler, options: argparse.Namespace) -> int:
    if not (sys.stdin and sys.stdin.isatty() and sys.stdout and sys.stdout.isatty()):
        commands.print_error("this is not a terminal; use --once", NAME)
        return 2
    try:
        from spawnlaunch.watch import screen
    except ImportError as error:
        remedy = "run pip install 'spawnlaunch[top]', or use --once"
        commands.print_error(f"{error.name} is not installed; {remedy}", NAME)
        return 2
    return screen.show(sampler, options.every, options.sort)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 0.1 and 3600; use 1")
    return seconds


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        sys.path[:] = PATH
