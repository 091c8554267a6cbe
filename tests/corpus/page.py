"""docs/corpus.md, from the programs and from what has come of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.corpus.running import Came, differences
from tests.corpus.table import PROGRAMS, Program, described
from tests.support.launching import ROOT

PAGE = ROOT / "docs" / "corpus.md"
Result = Mapping[str, Any]  # of a program
HEAD = """\
# Programs that people start with torchrun

`python -m torch.distributed.run` and `python -m spawnlaunch` have started each of these programs
with the same command line, on CPUs with gloo. Compared is what a user has of it: all lines on
stdout (without the prefix of ranks, and sorted, because ranks print at once), the exit status, and
the files that it wrote, byte for byte. After each, no process was left. The scripts are in
`tests/corpus/scripts`. They are short, and restate what their source shows; those of Accelerate are
its own. `python -m tests.corpus --write` runs all and writes this page; `make full` and
`make clients` run them again.

Programs: {all}; those that do the same: {same}; those that differ on purpose, as
[differences](torchrun.md#differences) says: {differ}.

| program | what it is | source | compared | torchrun | spawnlaunch | |
|---|---|---|---|---|---|---|"""
VARYING = """
## Files that differ from run to run

Under either launcher. Of these the names were compared, and not what is in them.

| program | files | why |
|---|---|---|"""


def result(theirs: Came, ours: Came) -> Result:
    return {
        "lines": len(theirs.lines),
        "files": len(theirs.files),
        "theirs": theirs.status,
        "ours": ours.status,
        "differ": differences(theirs, ours),
    }


def is_expected(program: Program, found: Result) -> bool:
    differ = [name for name in Came._fields if name in program.differs]
    return found["differ"] == differ and found["theirs"] == program.status


def page(results: Mapping[str, Result]) -> str:
    return "\n".join(_page(results)) + "\n"


def _page(results: Mapping[str, Result]) -> Iterator[str]:
    same = sum(not results[program.name]["differ"] for program in PROGRAMS)
    yield HEAD.format(all=len(PROGRAMS), same=same, differ=len(PROGRAMS) - same)
    for program in PROGRAMS:
        found = results[program.name]
        compared = f"{_counted(found['lines'], 'line')}, {_counted(found['files'], 'file')}"
        ends = (f"ends with {found[who]}" for who in ("theirs", "ours"))
        cells = (*described(program), compared, *ends, _verdict(program, found))
        yield f"| `{program.name}` | {' | '.join(cells)} |"
    yield VARYING
    for program in PROGRAMS:
        for pattern, why in program.varying.items():
            yield f"| `{program.name}` | `{pattern}` | {why} |"


def _counted(count: int, noun: str) -> str:
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"


def _verdict(program: Program, found: Result) -> str:
    if not is_expected(program, found):
        return f"**{', '.join(found['differ']) or 'nothing'} differ**"
    if not program.differs:
        return "same"
    named = (f"{what}: [{row}](torchrun.md#differences)" for what, row in program.differs.items())
    return f"differs, {'; '.join(named)}"
