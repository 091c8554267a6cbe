"""The pages that are made from the source: python -m docs.generate writes them.

flags.md is the table of flags, errors.md the errors that the tests provoke; index.md and
comparison.md have figures of benchmarks.md, and comparison.md the number of goals that are missed
and what two launchers do on the machines of the tests. A test compares.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from benchmarks.report import GOAL
from docs import numa_table
from spawnlaunch.cli import torchrun as theirs
from spawnlaunch.cli.flags import FLAGS, Flag
from spawnlaunch.cli.manual import SECTIONS
from tests import machines
from tests.machines.tree import build
from tests.messages import of_flags, of_the_run, of_the_world
from tests.messages.row import ONE_EACH, STEP, Row
from tests.messages.test_messages import error_of, furnish

DOCS = Path(__file__).parent
ROOT = DOCS.parent
TITLES = {"": "General"}
# The errors that have a heading of their own: where one has to know more than most messages say.
EXPLAINED = {
    "Command line": (
        of_flags.ROWS,
        """torchrun is a launcher
--nproc 4
no GPU is visible here
CUDA_VISIBLE_DEVICES=-1
this is WSL
--max-restarts needs a launcher""",
    ),
    "Ranks, nodes and resource managers": (
        of_the_world.ROWS,
        """Slurm has started 2 tasks
2 nodes (SLURM_JOB_NUM_NODES)
SLURM_JOB_ID is missing
exports no world size
exports no number of pods
exports no host of its first pod
names the host of node rank 0
exports no rank 0 host""",
    ),
}

# Of launches that have begun: the errors whose cause is in the machine or on other nodes.
IN_TABLE = (
    "SPAWNLAUNCH_TOKEN has",
    "the launchers cannot meet",
    "the record broke off",
    "cannot make the directory",
    "--preload",
    "the system refuses",
    "20 workers need",
    "the launcher at which",
    "cannot start",
    "cannot write to stdout",
    "--debug 1",
)

FLAGS_HEAD = """\
# Flags

All flags of the launcher, as `spawnlaunch --help` shows them.
`python -m docs.generate` makes this page from the table that reads the command line.

- The script gets everything after its name.
- You may write `_` for `-` in a flag's name, `--flag=value` for `--flag value`, and `5m` or `2h`
  for a time in seconds.
- A flag marked **launcher** needs a launcher that stays above its workers. It is refused if the
  resource manager has started one task per rank.
- A variable sets its flag, as under torchrun. A typed flag wins over the variable.
"""
ERRORS_HEAD = """\
# Errors and remedies

Messages of the launcher by their whole text, each with a command that brings it about and one that
works. An error is one line: what the launcher saw, why it cannot be, and what to use. Most need no
more than that line, and are not here. The exit status is 2, unless another one is named.

The tests provoke every error on this page, and use its remedy; `python -m docs.generate` makes the
page from them. Put `spawnlaunch --explain` in front of a command that has no `$`.
"""
ERRORS_COLUMNS = """\
| the error says | what to type, in its words | typed, for example | this works |
|---|---|---|---|"""

PLACES = {  # where an error comes about, by the variables there
    "in a Slurm step": STEP,
    "in a Slurm step with one task on each node": ONE_EACH,
    "in a task of MPICH": of_the_world.MPICH,
    "in a task of Open MPI": of_the_world.OMPI,
    "in a task of Flux": of_the_world.FLUX,
    "in a task of HPE PALS": of_the_world.PALS,
}
STAGED = {  # what a test types to bring an error about, and what stands for it on the page
    "unshare --net python -m tests.messages.occupied ": "",
    "python -m tests.support.refusing getppid ": "",
    of_the_run.SERVE: "# another program listens at $PORT",
    "[1]" * 40: "[1][1][1]...",
}


def flags() -> Iterator[str]:
    """The page of all flags."""
    yield FLAGS_HEAD
    for section in SECTIONS:
        yield f"## {TITLES.get(section, section[:1].upper() + section[1:])}\n"
        if section and SECTIONS[section]:
            yield f"{SECTIONS[section]}\n"
        yield "| flag | what it does | variable |\n|---|---|---|"
        yield from (_row(flag) for flag in FLAGS if flag.section == section)
        yield ""
    yield "See also [exit statuses](ending.md#exit-statuses).\n"


def _row(flag: Flag) -> str:
    words = "" if callable(flag.read) or not flag.read else "|".join(flag.read)
    shown = flag.shown or words
    value = f"{'' if shown.startswith('[') else ' '}{shown}" if shown else ""
    spellings = [f"`{flag.name}{value}`".replace("|", "\\|"), *(f"`{name}`" for name in flag.also)]
    needs = " **launcher**" if flag.needs_parent else ""
    torchrun = [name for name in theirs.TORCHRUN if theirs.flag(name) is flag]
    exported = [f"`{theirs.variable(name)}`" for name in torchrun if name not in theirs.NOT_READ]
    return f"| {', '.join(spellings)} | {_cell(flag.help)}{needs} | {', '.join(exported)} |"


def errors() -> Iterator[str]:
    """The page of errors: by their messages, and those of launches that have begun in a table."""
    yield ERRORS_HEAD
    with tempfile.TemporaryDirectory() as place, as_a_launcher_in(furnish(Path(place))):
        for title, (rows, beginnings) in EXPLAINED.items():
            yield f"## {title}\n"
            for words in beginnings.splitlines():
                row = next(row for row in rows if words in f"{row.seen} {row.why}")
                message = error_of(row.wrong, row, Path(place))
                message = message.replace(f"{place}/", "/home/me/").replace(" --explain", "")
                exported, where = _circumstances(row)
                yield f"### {_text(_cell(message))}\n"
                yield (
                    f"After {_code(row.wrong)}{', '.join(['', *filter(None, (where, exported))])}. "
                    f"This works: {_mended(row)}.\n"
                )
    yield "## Start and run\n"
    yield ERRORS_COLUMNS
    yield from (_error(row) for row in of_the_run.ROWS if row.seen.startswith(IN_TABLE))
    yield ""


def in_short(page: str) -> str:
    """The page with the command `spawnlaunch` in place of the module that the tests run."""
    return page.replace("python -m spawnlaunch.", "spawnlaunch ").replace(
        "python -m spawnlaunch", "spawnlaunch"
    )


@contextlib.contextmanager
def as_a_launcher_in(place: Path) -> Iterator[None]:
    """Be a launcher that was started in this directory, for the lines that messages repeat."""
    before, orig_argv, argv = Path.cwd(), sys.orig_argv, sys.argv
    os.chdir(place)
    sys.orig_argv, sys.argv = ["python", "-m", "spawnlaunch"], ["spawnlaunch"]
    try:
        yield
    finally:
        os.chdir(before)
        sys.orig_argv, sys.argv = orig_argv, argv


def _circumstances(row: Row) -> tuple[str, str]:
    """Return the variables of a row, and the place that has the others."""
    extra, place = _variables_beside(row)
    exported = " ".join(f"{name}={value}" for name, value in extra.items())
    return exported and f"with `{_cell(exported)}`", place


def _mended(row: Row) -> str:
    mend = f"{_code(row.mend)}, then " if row.mend != ":" else ""
    return f"{mend}{_code(row.right)}"


def _error(row: Row) -> str:
    where = "".join(f"<br>{word}" for word in reversed(_circumstances(row)) if word)
    before = f"`{_cell(row.prepare)}`<br>" if row.prepare != ":" else ""
    mend = f"`{_cell(row.mend)}`<br>" if row.mend != ":" else ""
    status = f"<br>status {row.status}" if row.status != 2 else ""
    message = _text(f"{_cell(row.seen)} ... {_cell(row.why)}{status}")
    typed = f"{before}{_code(row.wrong)}{where}"
    for staged, instead in STAGED.items():
        typed = typed.replace(_cell(staged), instead)
    cells = (message, _text(_cell(row.do)), typed)
    return f"| {' | '.join(cells)} | {mend}{_code(row.right)} |"


def _variables_beside(row: Row) -> tuple[dict[str, str], str]:
    """Return the variables that a place does not have anyway, and the place; the fewest."""
    choices = [(dict(row.environ), "")]
    for place, base in PLACES.items():
        if base.keys() <= row.environ.keys():
            extra = {name: text for name, text in row.environ.items() if base.get(name) != text}
            choices.append((extra, place))
    return min(choices, key=lambda each: len(each[0]))


def _code(line: str) -> str:
    return f"`{_cell(line)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("`", "'")


def _text(text: str) -> str:
    """Escape the characters of markup."""
    for character in "*_[]":
        text = text.replace(character, f"\\{character}")
    return text.replace("<br>", "\n").replace("<", "&lt;").replace("\n", "<br>")


def picture() -> str:
    """The node of the page on pinning."""
    with tempfile.TemporaryDirectory() as place:
        words = f"--explain=svg --sysfs-root {build(Path(place), machines.LUMI)} --nproc gpu"
        words += " --reserve-cpus first-per-l3 --smt off -m json.tool"
        command = (sys.executable, "-m", "spawnlaunch", *words.split())
        drawn = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    host = subprocess.run(["uname", "-n"], check=True, capture_output=True, text=True).stdout
    return drawn.stdout.replace(f"of {host.strip()},", "of a LUMI-G node,").replace(
        f">{host.strip()}:", ">a LUMI-G node:"
    )


def measured(launchers: Mapping[str, str], columns: Mapping[str, str]) -> str:
    """Return a table of medians from benchmarks.md, with a line on how they were measured.

    It has these launchers and these columns of the section `launch`.
    """
    text = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    section = text.partition("<!-- launch -->")[2].partition("<!-- end of launch -->")[0]
    patterns = (r"; (\d+) rounds", r": (\d+) CPUs", r"`, (\d{4}-\d\d-\d\d), ")
    rounds, cpus, day = (re.findall(pattern, section)[0] for pattern in patterns)
    head, _, *rows = (_cells(line) for line in section.splitlines() if line.startswith("|"))
    by_name = {cells[0]: dict(zip(head, cells, strict=True)) for cells in rows}
    lines = [f"| | {' | '.join(columns.values())} |", "|---" * (len(columns) + 1) + "|"]
    for name, title in launchers.items():
        medians = (_median(by_name[name][column], column) for column in columns)
        lines.append(f"| {title} | {' | '.join(medians)} |")
    how = f"Medians of {rounds} rounds of `python -m benchmarks.launch` on {cpus} CPUs, {day}, with"
    real = "A real script first waits for `import torch`, under every launcher: until the first"
    below = (f"{how} workers that do nothing.", real, "all-reduce, spawnlaunch is a little faster.")
    return "\n".join((*lines, "", *below))


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def _median(cell: str, column: str) -> str:
    """`1,624 (1,395 to 2,198)` of a column in ms is `1.62 s`."""
    number = cell.partition(" ")[0].replace(",", "")
    if not number:
        return ""
    if column.endswith("ms"):
        return f"{float(number) / 1000:.2f} s"
    return f"{float(number):.0f} MiB"


def with_section(text: str, name: str, section: str) -> str:
    """Return the text of a page with a section between the two comments that name it."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, mark, rest = text.partition(begin)
    _, end, after = rest.partition(end)
    if not mark or not end:
        raise ValueError(f"the page has no place for {name}: {text[:40]}")
    return f"{before}{mark}\n{section}\n{end}{after}"


def goals_missed() -> str:
    """The sentence about the goals in benchmarks.md."""
    text = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    judged = [goal["judged"] for goal in GOAL.finditer(text)]
    judged += re.findall(r", (too few rounds to tell)", text)
    n, met = judged.count("NOT met"), judged.count("met")
    open_ones = len(judged) - n - met
    more = f", and {open_ones} could not be judged" if open_ones else ""
    where = "; the page marks each with `NOT met`" if n else ""
    goals = f"Of our {len(judged)} performance goals in [benchmarks](benchmarks.md)"
    line = f"{goals}, {n} are not met{more}{where}."
    return textwrap.fill(line, 110, break_long_words=False, break_on_hyphens=False)


START_8, START_64 = "start of 8, ms", "start of 64, ms"
COLUMNS = {
    START_8: "until all of 8 workers have printed",
    "memory, MiB": "the launcher's memory",
    "death to end, ms": "from a worker's death to the end of the launch",
}
SHORT = {"spawnlaunch": "spawnlaunch", "torchrun": "torchrun"}
LONG = {
    "spawnlaunch": "spawnlaunch",
    "shell loop": "a shell loop, which pins and watches nothing",
    "torchrun": "torchrun",
    "accelerate": "accelerate launch",
    "mpirun": "mpirun",
}


def comparison() -> str:
    """The comparison, with the figures as they were measured last, and the goals."""
    text = (DOCS / "comparison.md").read_text(encoding="utf-8")
    columns = {START_8: COLUMNS[START_8], START_64: "until all of 64 have", **COLUMNS}
    text = with_section(text, "figures", measured(LONG, columns))
    text = with_section(text, "numa-binding", "\n".join(numa_table.section()))
    return with_section(text, "goals", goals_missed())


def index() -> str:
    """The first page of the site, with the figures of the launchers."""
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    return with_section(text, "figures", measured(SHORT, COLUMNS))


PAGES: Mapping[str, Callable[[], str]] = {
    "docs/flags.md": lambda: "\n".join(flags()),
    "docs/errors.md": lambda: in_short("\n".join(errors())),
    "docs/comparison.md": comparison,
    "docs/index.md": index,
}


def main() -> None:
    """Write all of them."""
    for name, page in PAGES.items():
        (ROOT / name).write_text(page(), encoding="utf-8")
    (DOCS / "pinning.svg").write_text(picture(), encoding="utf-8")


if __name__ == "__main__":
    main()
