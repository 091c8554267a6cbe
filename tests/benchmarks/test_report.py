"""What the benchmarks write, and what they check before they do."""

from pathlib import Path

import pytest

from benchmarks import output, report
from benchmarks.__main__ import PARTS
from benchmarks.report import Goal, Section
from benchmarks.turns import turns

SECTION = Section(
    "launch", "Launching", "Fast.", ["launcher", "s"], [["ours", "1"]], [Goal("Share", 0.5, 0.4)]
)


def test_a_section_has_its_table_its_goals_and_the_command_that_made_it():
    text = report.render(SECTION, "python -m benchmarks.launch --rounds 1", 0.5)
    assert text.startswith("## Launching\n\nFast.\n\n| launcher | s |\n|---|---|\n| ours | 1 |\n")
    assert "Share: 0.500, the goal is at most 0.400: NOT met" in text
    assert "`python -m benchmarks.launch --rounds 1`, 20" in text
    assert ", load 0.5 before it: " in text


def test_a_section_takes_the_place_of_its_own_and_of_no_other(tmp_path: Path):
    document = tmp_path / "docs" / "benchmarks.md"
    for name, text in (("launch", "old"), ("plan", "kept"), ("launch", r"new \1")):
        report.write(name, text, document)
    written = document.read_text()
    assert written.startswith(report.HEADER)
    assert written.endswith(
        "<!-- launch -->\nnew \\1\n<!-- end of launch -->\n\n"
        "<!-- plan -->\nkept\n<!-- end of plan -->\n"
    )


def test_every_part_is_a_program_in_its_folder():
    folder = Path(report.__file__).parent
    programs = {file.stem for file in folder.glob("*.py") if "report.main(" in file.read_text()}
    assert programs == set(PARTS)


def test_all_rivals_take_turns_and_another_one_begins_each_time(capsys):
    assert list(turns(3, ["a", "b"])) == ["a", "b", "b", "a", "a", "b"]
    assert capsys.readouterr().err.splitlines()[-1] == "round 3 of 3"


def lines(*numbers: int) -> bytes:
    """Whole lines of all workers, with a prefix."""
    return b"".join(
        f"[{worker}] {f'worker {worker} line {number} ':.<{output.CHARS}}\n".encode()
        for number in numbers
        for worker in range(output.WORKERS)
    )


def test_whole_lines_in_order_are_accepted():
    output.check(lines(0, 1, 2), 3)


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        (lines(0, 2), "line 2 where 1 was due"),
        (lines(0), "lines are missing"),
        (lines(0, 1).replace(b"..\n[1]", b"..[1]", 1), "not whole"),
        (lines(0, 1).replace(b".\n", b"\n", 1), "not whole"),
        (lines(0, 1).replace(b"[2] ", b"", 1), "not whole"),
    ],
    ids=["lost", "short", "run together", "torn", "without a prefix"],
)
def test_lines_that_are_lost_torn_or_unmarked_are_found(said: bytes, complaint: str):
    with pytest.raises(ValueError, match=complaint):
        output.check(said, 2)
