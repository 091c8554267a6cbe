"""The command line: what is ours, what is the worker's, and what wrong use is told."""

import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from spawnlaunch.base.errors import UsageError
from spawnlaunch.cli import flags, parsing, slips, torchrun
from spawnlaunch.cli.flags import Program
from tests.support.launching import WORKERS, clean_environ, launch, run
from tests.support.processes import until
from tests.support.watching import launched

SCRIPT = str(WORKERS / "report.py")


def parse(*argv: str) -> flags.Request:
    return parsing.parse(argv, {}, "python")


@pytest.mark.parametrize(
    "words",
    ["--nproc 2", "--nproc=2", "--nproc-per-node 2", "--nproc_per_node 2", "--nproc_per_node=2"],
)
def test_nproc_has_torchruns_spellings(words: str):
    assert parse(*words.split(), SCRIPT, "--nproc", "7").nproc == 2


@pytest.mark.parametrize(
    ("words", "program"),
    [
        ([SCRIPT, "-m", "--"], Program("script", SCRIPT, ("-m", "--"))),
        (["--", SCRIPT, "a"], Program("script", SCRIPT, ("a",))),
        (["-m", "pkg.mod", "--help"], Program("module", "pkg.mod", ("--help",))),
        (["-m", "--nproc", "2", "pkg.mod"], Program("module", "pkg.mod", ())),
        (["--no-python", "sh", "-c", ":"], Program("program", "sh", ("-c", ":"))),
        (["--"], Program("bundled", "", ())),
        (["--", "--steps", "3"], Program("bundled", "", ("--steps", "3"))),
    ],
)
def test_the_workers_command_begins_at_the_first_word_that_is_not_ours(words, program):
    assert parse(*words).program == program


@pytest.mark.parametrize(
    "name",
    [
        *("RANK", "WORLD_SIZE", "LOCAL_RANK", "PET_NODE_RANK", "PMI_RANK", "PMI_SIZE"),
        *("SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS", "SLURM_NNODES"),
        *("OMPI_COMM_WORLD_SIZE", "PALS_RANKID", "FLUX_JOB_SIZE", "JOB_COMPLETION_INDEX"),
    ],
)
def test_without_a_word_the_bundled_loop_runs_where_a_variable_tells_a_rank_or_a_size(name):
    assert parsing.parse([], {name: "1"}, "python").program == Program("bundled", "", ())
    with pytest.raises(flags.NoWords):
        parsing.parse([], {name: "", "SIZE": "1", "BATCH_SIZE": "1", "PAGERANK": "1"}, "python")


def test_without_a_word_there_is_a_short_help():
    done = run(sys.executable, "-m", "spawnlaunch")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: python -m spawnlaunch [flags] [script")
    assert "python -m spawnlaunch --help" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--on-hang=kill"],
            ["--on-hang kill does nothing without --hang-timeout SECONDS"],
        ),
        (["--on-hang=kill", "--hang-timeout=9"], []),
        (
            ["--restart-window=9"],
            ["--restart-window does nothing without --max-restarts N"],
        ),
        (["--no-restart-status=9", "--max-restarts=1"], []),
    ],
)
def test_a_flag_that_does_nothing_without_another_says_so(words, said):
    assert parsing.warnings(parse(*words, SCRIPT), several_nodes=False) == said


@pytest.mark.parametrize("words", [["--nproc", "2"], ["--nproc=2"], ["--lr", "1", "--nproc", "2"]])
def test_nproc_behind_a_script_that_does_not_name_it_is_told(words, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("print(1)")
    (said,) = parsing.warnings(parse(str(script), *words), several_nodes=False)
    assert said.endswith(f"run python -m spawnlaunch --nproc 2 {script}")
    assert parsing.warnings(parse("--nproc", "1", str(script), *words), several_nodes=False) == []
    script.write_text("parser.add_argument('--nproc')")
    assert parsing.warnings(parse(str(script), *words), several_nodes=False) == []
    (tmp_path / "__main__.py").touch()
    assert parsing.warnings(parse(str(tmp_path), *words), several_nodes=False) == []


@pytest.mark.parametrize(("unit", "of"), [("", 1), ("s", 1), ("m", 60), ("h", 3600)])
def test_a_time_has_a_unit_or_is_in_seconds(unit, of):
    assert parse("--grace", f"2.5{unit}", SCRIPT).grace_s == 2.5 * of
    for wrong in (f"-1{unit}", f"1e3{unit}", f"x{unit}", f"1{unit} ", "m", "1m30"):
        with pytest.raises(UsageError, match="seconds"):
            parse(f"--grace={wrong}", SCRIPT)


def test_an_error_is_one_line_that_no_terminal_obeys_and_nobody_has_to_scroll():
    assert str(UsageError("a\nb\x1b[2J \u2028 \udcff é")) == "a\\nb\\x1b[2J \\u2028 \\xff é"
    long = str(UsageError("unknown " + "x" * 100_000 + "; type y"))
    assert long.startswith("unknown xxx")
    assert long.endswith("xxx; type y")
    assert len(long) < 5000


def test_a_warning_shows_what_was_exported_in_one_line_too():
    environ = clean_environ(MASTER_ADDR="10.9.8.7\nspawnlaunch: all is well\x1b[2J")
    done = launch("--nproc", 1, "--quiet", "--no-python", "true", environ=environ)
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert "replaced MASTER_ADDR=10.9.8.7\\nspawnlaunch: all is well\\x1b[2J, which has" in line


def test_the_interpreter_is_ours_unless_PYTHON_EXEC_names_another():
    assert parse(SCRIPT).python == "python"
    assert parsing.parse([SCRIPT], {"PYTHON_EXEC": "other"}, "python").python == "other"


def test_every_flag_of_another_launcher_is_none_of_ours():
    assert [name for name in slips.OF_OTHERS if torchrun.flag(name)] == []


@pytest.mark.parametrize("flags", ["--nproc 2", "--nproc 2 --"])
def test_a_forgotten_script_is_said_before_anything_else(flags: str, tmp_path: Path):
    with launched(*flags.split(), directory=tmp_path, preexec=partial(os.chdir, tmp_path)) as one:
        until(lambda: "\n" in one.stderr, "a line is said")
        assert one.stderr.startswith("spawnlaunch: warning: no script is named, so the bundled ")
        assert "add its path after the flags" in one.stderr
        one.send(signal.SIGTERM)
        one.status()


@pytest.mark.parametrize(("columns", "widest"), [("", 80), ("40", 80), ("93", 93), ("300", 100)])
def test_help_is_a_page_on_stdout_as_wide_as_the_terminal(columns: str, widest: int):
    done = launch("--help", environ=clean_environ(COLUMNS=columns), stdin=subprocess.DEVNULL)
    assert done.returncode == 0
    assert done.stderr == ""
    assert widest - 3 <= max(map(len, done.stdout.splitlines())) <= widest


def test_the_short_help_names_all_flags_on_a_screen():
    shown = launch("-h", environ=clean_environ(COLUMNS="80")).stdout
    assert {flag.name for flag in flags.FLAGS} <= set(re.findall(r"-[-\w]+", shown))
    assert len(shown.splitlines()) <= 42


def test_help_shows_every_spelling_of_every_flag_and_the_other_programs():
    said = launch("--help").stdout
    words = set(re.findall(r"-[-\w]+", said))
    assert set(flags.SPELLINGS) <= words
    for program in flags.PROGRAMS:
        assert re.search(rf"^  spawnlaunch .*{program}\b", said, re.M), program


def test_each_row_of_the_table_is_a_field_of_the_request():
    no_field = {"help", "version", "completion", "m", "no_python"}
    not_typed = {"typed_flags", "sources", "notes"}
    fields = {*flags.Request._field_defaults} - not_typed
    assert {flag.field for flag in flags.FLAGS} - no_field == fields


@pytest.mark.parametrize(("argv", "read", "rest"), [
    ("--bogus x --nnodes 2 a.py --nproc 3", [("--nnodes", "2")], "a.py --nproc 3"),
    ("--bogus=3 a.py --nproc 3", [], "a.py --nproc 3"),
    ("--standalone=1 --rdzv-id a -- --nproc 3", [("--rdzv-id", "a")], "--nproc 3"),
    ("--standalone --nproc", [("--standalone", None)], ""),
])  # fmt: skip
def test_a_lenient_reader_leaves_out_what_is_wrong(
    argv: str, read: list[tuple[str, str | None]], rest: str
) -> None:
    given, words = parsing.read_flags(argv.split(), lenient=True)
    assert [(flag.name, text) for flag, text, _ in given] == read
    assert words == rest.split()
