"""Each line of srun that starts one task per rank ends the other ranks when one fails."""

import re
from pathlib import Path

import pytest

from tests.support.launching import ROOT

PAGES = [
    *(ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("kubernetes/*")),
    *(*ROOT.glob("slurm/*"), *ROOT.glob("spawnlaunch/**/*.py")),
]
LINE = re.compile(r"srun (?:(?!srun )[^\n`])*?(?:-m )?spawnlaunch(?! top)(?:[^\n`;]|\\\n)*")
# Whose launchers end together by themselves; Slurm could end them before they have said why.
ONE_PER_NODE = re.compile(r"--nproc|--ntasks-per-node=1\b|--standalone")
ENDS_ALL = ("--kill-on-bad-exit=1", "-K1")
EXPORTED = "export SLURM_KILL_BAD_EXIT=1"
# Lines for within a script that exports it.
IN_A_SCRIPT = ('`srun --cpu-bind=none python -m spawnlaunch "$@"`',)


def lines(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    for part in IN_A_SCRIPT:
        text = text.replace(part, "")
    return LINE.findall(text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_line_for_one_task_per_rank_has_the_flag_and_no_other_has_it(page: Path) -> None:
    is_exported = EXPORTED in page.read_text(encoding="utf-8") and page.suffix == ".sh"
    for line in lines(page):
        has_it = is_exported or any(flag in line for flag in ENDS_ALL)
        assert has_it != bool(ONE_PER_NODE.search(line)), line


def test_the_pages_have_such_lines() -> None:
    assert lines(ROOT / "README.md")
    assert lines(ROOT / "slurm/tasks.sh")
