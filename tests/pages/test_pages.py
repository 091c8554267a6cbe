"""Every command that the documentation shows is run, here or elsewhere, or says why it is not."""

import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from docs import generate
from tests.pages.reading import Block, blocks, links, pages
from tests.support.launching import ROOT, clean_environ, run, start
from tests.support.patience import PATIENCE_S

TYPED = re.compile(r"^(\$ |python |pip |make |srun |sbatch |torchrun )", re.M)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def runs_here(block: Block) -> bool:
    return block.kind == "console" and block.word in ("", "status", "Ctrl-C")


SHOWN = [pytest.param(page, id=name(page)) for page in pages()]
MINUTES = ("classify", "language-model", "scaling")  # pages that train for that long
RUN = [
    pytest.param(
        page, id=name(page), marks=pytest.mark.nightly if page.stem in MINUTES else pytest.mark.full
    )
    for page in pages()
    if any(map(runs_here, blocks(page)))
]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", RUN)
def test_the_commands_of_a_page_work_from_top_to_bottom(page: Path, tmp_path: Path):
    for block in blocks(page):
        if block.file:
            (tmp_path / block.file).write_text(block.text)
        elif runs_here(block):
            for command in block.commands:
                if block.word == "Ctrl-C":
                    status, done = 75, interrupted(command, tmp_path, block.rest)
                else:
                    status, done = int(block.rest or 0), typed(command, tmp_path)
                output = f"line {block.line}: {command}\n{done.stdout}{done.stderr}"
                assert done.returncode == status, output


def typed(command: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a line in a shell in which `python` is this one."""
    options = {"cwd": directory, "environ": of_a_reader(), "timeout_s": 2 * PATIENCE_S}
    return run("bash", "-c", command, **options)


def interrupted(command: str, directory: Path, at: str) -> subprocess.CompletedProcess[str]:
    """Run it, with Ctrl-C as of a terminal once a line has this text."""
    options = {"stderr": subprocess.STDOUT, "start_new_session": True}
    shell = start("bash", "-c", command, cwd=directory, environ=of_a_reader(), **options)
    output = ""
    for line in shell.stdout:
        output += line
        if at in line:
            os.killpg(shell.pid, signal.SIGINT)
    return subprocess.CompletedProcess(command, shell.wait(), output, "")


def of_a_reader() -> dict[str, str]:
    """The environment of a shell in which `python` is this one."""
    ways = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environ = {k: v for k, v in clean_environ(PATH=ways).items() if k != "COLUMNS"}
    return {**environ, "HF_HUB_OFFLINE": "1"}


@pytest.mark.parametrize("page", SHOWN)
def test_a_command_that_is_not_run_has_a_reason(page: Path):
    for block in blocks(page):
        where = f"{name(page)}:{block.line}"
        if block.kind in ("bash", "sh", "shell"):
            continue  # a part of a batch script
        if block.word == "runs in":
            assert (ROOT / block.rest.partition(",")[0]).is_file(), where
        if not block.kind:
            assert not TYPED.search(block.text), f"{where} is typed, so it is of the kind console"


@pytest.mark.parametrize("page", SHOWN)
def test_links_lead_to_files_that_are_there(page: Path):
    assert [each for each in links(page) if not (page.parent / each).exists()] == []


@pytest.mark.parametrize("page", SHOWN)
def test_a_part_of_a_file_is_as_the_file_is_now(page: Path):
    for block in filter(lambda block: block.part_of, blocks(page)):
        shown = block.text.partition("\n")[2]
        source = (ROOT / block.part_of).read_text()
        assert any(textwrap.indent(shown, deep * " ") in source for deep in (0, 4, 8)), block.line


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_names_on_a_page_for_authors_are_in_the_source(page: str):
    files = [
        file for part in ("spawnlaunch", "tests", "train") for file in (ROOT / part).rglob("*.py")
    ]
    source = "".join(file.read_text() for file in files)
    names = re.findall(r"`(_?[A-Za-z]+(?:_[A-Za-z]+)+)`", (ROOT / page).read_text())
    assert [name for name in names if name not in source] == []


@pytest.mark.parametrize("page", generate.PAGES)
def test_a_generated_page_is_as_its_source_is_now(page: str):
    text = generate.PAGES[page]()
    assert (ROOT / page).read_text(encoding="utf-8") == text, "run python -m docs.generate"


def test_a_page_has_the_number_of_goals_that_are_missed():
    judged = re.findall(r"goal is at .*", (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8"))
    missed = sum("NOT met" in line for line in judged)
    text = (ROOT / "docs/comparison.md").read_text(encoding="utf-8")
    assert re.search(rf"\nOf our {len(judged)} performance goals .*, {missed} are not met", text)


@pytest.mark.parametrize("page", ["README", "docs/index", "docs/comparison"])
def test_a_page_claims_no_figure_that_a_program_did_not_write(page: str):
    generated = r"<!-- ([\w-]+) -->.*?<!-- end of \1 -->|^```.*?^```"
    typed = re.sub(generated, "", (ROOT / f"{page}.md").read_text(), flags=re.S | re.M)
    assert re.findall(r"\b\d[\d.,]* (?:s|ms|us|MiB|GiB|%|times|rounds|goals)(?!\w)", typed) == []
