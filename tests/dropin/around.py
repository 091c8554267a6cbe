"""One line for each row of differences, in any surroundings: the row holds there, and no other.

    python -m tests.dropin.around DIRECTORY SURROUNDINGS

prints a line for each row that does not, and nothing where all do.
"""

import re
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path

from tests.dropin.differences import DIFFERENCES, Context, expected, findings
from tests.dropin.launches import FILES, PIPE, SHELL, SPAWNLAUNCH, TERMINAL, TORCHRUN, Warm, see
from tests.dropin.line import Line
from tests.dropin.lines import SHELL_OF_TWO_NODES, TWO
from tests.support.ports import alone, free_port

DEFAULT_PORT = 29400  # of c10d under torchrun

# A line that shows the row. Where several could, the one that shows the most.
WITNESSES: Mapping[str, Line] = {
    "prefix": Line(f"--tee 3 {TWO} train.py"),
    "last words": Line(f"{TWO} train.py", do="1:exit 3;0:sleep"),
    "exit status": Line(f"{TWO} train.py", do="1:exit 3;0:sleep"),
    "wrong use": Line(f"--rdzv-conf nonsense {TWO} train.py"),
    "more is allowed": Line(f"-t 10:3 {TWO} train.py"),
    "less is allowed": Line(f"--local-ranks-filter 7 {TWO} train.py"),
    "shell of a job": Line(f"{TWO} train.py", SHELL_OF_TWO_NODES),
    "final statuses": Line(f"--max-restarts 1 {TWO} train.py", do="1:exit 75@0"),
    "port": Line(f"{TWO} train.py"),
    "address": Line(f"{TWO} train.py"),
    "run id": Line(f"{TWO} train.py"),
    "node rank": Line(f"{TWO} train.py"),
    "agent store": Line(f"{TWO} train.py"),
    "signals": Line(f"{TWO} train.py", do="sleep", signals=("SIGINT",)),
    "error file": Line(
        f"{TWO} train.py", {"TORCHELASTIC_ERROR_FILE": "{dir}/error.json"}, do="1:raise"
    ),
    "device order": Line(f"{TWO} train.py"),
    "threads": Line("train.py"),
    "marks": Line(f"{TWO} train.py"),
    "session": Line("train.py"),
    "run path": Line(f"--run-path {TWO} {{dir}}/train.py a"),
    "virtual local rank": Line(
        "--nproc_per_node=2 --virtual-local-rank train.py", program="launch"
    ),
    "two hyphens": Line(f"{TWO} train.py -- a"),
    "log files": Line(f"--log-dir {{logs}} {TWO} train.py"),
    "filtered logs": Line(
        f"--tee 3 --log-dir {{logs}} --duplicate-stdout-filters out {TWO} train.py"
    ),
    "left behind": Line(f"{TWO} train.py", do="0:family 4"),
    "file timer": Line(f"{TWO} train.py", {"TORCHELASTIC_ENABLE_FILE_TIMER": "1"}),
    "terminal": Line(f"{TWO} train.py"),
}
NOT_EVERYWHERE = {"two hyphens"}  # some versions of Python
# Whoever reads a pipe or a terminal to its end waits for what is left behind.
NOT_IN = {PIPE: {"left behind", "terminal"}, TERMINAL: {"left behind"}, SHELL: {"terminal"}}


def shows(name: str, context: Context) -> bool:
    """Whether a finding is one of this row."""
    rules = [row for row in DIFFERENCES if row.name == name]
    return any(
        re.fullmatch(rule.facet, found.facet) and rule.holds(found.theirs, found.ours, context)
        for found in findings(context.theirs, context.ours)
        for rule in rules
    )


def wrong(around: str, base: Path, warm: Warm) -> Iterator[str]:
    """What is not as the rows say, each line tried once."""
    lines = {str(line): line for line in WITNESSES.values()}
    for number, line in enumerate(lines.values()):
        context = tried(line, base / str(number), warm, around)
        for found in findings(context.theirs, context.ours):
            if not expected(found, context):
                yield f"{line}: {found}\n{context.theirs.stderr}\n{context.ours.stderr}"
        for name, witness in WITNESSES.items():
            is_due = name not in NOT_EVERYWHERE | NOT_IN[around]
            if str(witness) == str(line) and is_due and not shows(name, context):
                yield f"{line}: {name!r} is not seen\n{context.theirs}\n{context.ours}"


def tried(line: Line, top: Path, warm: Warm, around: str = FILES) -> Context:
    """Under both launchers, below the directory `top`."""
    names_no_port = "c10d" in line.text and ":" not in line.text
    with socket.socket() as busy, alone(DEFAULT_PORT) if names_no_port else nullcontext():
        busy.bind(("", 0))
        busy.listen()
        ports = {"port": str(free_port()), "busy": str(busy.getsockname()[1])}
        theirs = see(line, TORCHRUN, warm, top / "theirs", ports, around)
        ours = see(line, SPAWNLAUNCH, None, top / "ours", ports, around)
    return Context(line, theirs, ours)


def main(directory: str, around: str) -> None:
    warm = Warm()
    try:
        for each in wrong(around, Path(directory), warm):
            print(each)
    finally:
        warm.end()


if __name__ == "__main__":
    main(*sys.argv[1:])
