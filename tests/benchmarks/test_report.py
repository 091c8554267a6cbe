"""What the benchmarks write, and what they check before they do."""

import re
from pathlib import Path

import pytest

from benchmarks import output, quiet, report
from benchmarks.__main__ import PARTS
from benchmarks.quiet import Use
from benchmarks.report import Goal, Section, cell, goal, goal_of_difference
from benchmarks.turns import turns

SECTION = Section(
    "launch", "Launching", "Fast.", ["launcher", "s"], [["ours", "1"]], [Goal("Share", 0.5, 0.4)]
)


QUIET, BUSY = Use(10.0, 0.01, 0.0, 0.0), Use(10.0, 1.5, 3.0, 0.9)


def test_a_section_has_its_table_its_goals_and_the_command_that_made_it():
    text = report.render(SECTION, "python -m benchmarks.launch --rounds 1", 0.5, QUIET, QUIET)
    assert text.startswith("## Launching\n\nFast.\n\n| launcher | s |\n|---|---|\n| ours | 1 |\n")
    assert "at most 0.400: NOT met" in text
    assert "`python -m benchmarks.launch --rounds 1`, 20" in text
    assert ", load 0.5 before it: " in text


def test_a_goal_is_met_by_the_end_of_its_interval_and_not_by_its_middle():
    theirs = [10.0] * 9
    near = [3.0, 3.1, 3.2, 3.0, 3.1, 3.2, 3.0, 3.1, 4.9]
    assert 0.32 < goal("Share", near, theirs, 0.4).value < 0.34
    said = [
        report.render(SECTION._replace(goals=[each]), "x", 0.5, QUIET, QUIET)
        for each in (
            goal("Share", near, theirs, 0.5),
            goal("Share", near, theirs, 0.335),
            goal("Share", near[:3], theirs[:3], 0.4),
            goal_of_difference("More, ms", [12.0] * 9, [10.0] * 9, 3.0),
        )
    ]
    assert "goal is at most 0.500: met" in said[0]
    assert "goal is at most 0.335: NOT met" in said[1]
    assert "; type --rounds 6" in said[2]
    assert "2.000 (2.000 to 2.000), the goal" in said[3]


def test_a_busy_machine_gives_ratios_only():
    section = SECTION._replace(
        rows=[["ours", cell([2.0, 2.0])], ["theirs", cell([8.0, 8.0])]],
        goals=[goal_of_difference("More, ms", [12.0] * 9, [10.0] * 9, 3.0)],
    )
    quietly = report.render(section, "x", 0.5, QUIET, QUIET)
    assert "| theirs | 8.00 (8.00 to 8.00) |" in quietly
    for before, during in ((BUSY, QUIET), (QUIET, BUSY)):
        said = report.render(section, "x", 0.5, before, during)
        assert "| ours | 1.000 |\n| theirs | 4.000 |" in said
        assert "**Busy**, so these are ratios" in said
        assert "not judged, it was busy" in said


def test_what_others_have_of_the_cpus_is_not_what_we_have():
    began = quiet.Counters(0.0, 100.0, 10.0, 0.0, 0.0)
    ours = quiet.use(began, quiet.Counters(10.0, 110.0, 20.0, 0.5, 1.0))
    assert (ours.others, ours.is_quiet, ours.pressure) == (0.0, True, 0.1)
    theirs = quiet.use(began, quiet.Counters(10.0, 120.0, 20.0, 0.5, 1.0))
    assert (theirs.others, theirs.is_quiet) == (1.0, False)


def test_it_waits_for_quiet_no_longer_than_it_may():
    assert quiet.wait(0, 0.01).took_s > 0


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


def test_behind_a_goal_are_the_values_of_earlier_invocations(tmp_path: Path):
    document = tmp_path / "benchmarks.md"
    for number in range(8):
        section = SECTION._replace(goals=[goal("Share", [number + 1.0] * 7, [10.0] * 7, 0.4)])
        text = report.render(section, "python -m benchmarks.launch", 0.5, QUIET, QUIET)
        report.write("launch", text, document)
    said = re.sub(r" \(\d{4}-\d\d-\d\d\)", "", document.read_text())
    assert "0.400: NOT met; earlier: 0.700, 0.600, 0.500, 0.400, 0.300  \n" in said


def test_every_part_is_a_program_in_its_folder():
    folder = Path(report.__file__).parent
    programs = {file.stem for file in folder.glob("*.py") if "report.main(" in file.read_text()}
    assert programs == set(PARTS)


def test_all_rivals_take_turns_in_an_order_that_is_drawn(capsys):
    taken = list(turns(30, "abc"))
    rounds = [tuple(taken[i : i + 3]) for i in range(0, len(taken), 3)]
    assert {"".join(sorted(each)) for each in rounds} == {"abc"}
    assert len({*rounds}) == 6
    assert capsys.readouterr().err.splitlines()[-1] == "round 30 of 30"


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
