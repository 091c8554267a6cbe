"""The command line: what is ours, what is the worker's, and what wrong use is told."""

import pytest

from spawnlaunch import cli
from spawnlaunch.cli import Program
from tests.launching import WORKERS, launch

SCRIPT = str(WORKERS / "report.py")


def parse(*argv: str) -> cli.Request:
    return cli.parse(argv, {}, "python")


@pytest.mark.parametrize(
    "words",
    [
        ["--nproc", "2"],
        ["--nproc=2"],
        ["--nproc-per-node", "2"],
        ["--nproc_per_node", "2"],
        ["--nproc_per_node=2"],
    ],
)
def test_nproc_has_torchruns_spellings(words):
    assert parse(*words, SCRIPT, "--nproc", "7").nproc == 2


@pytest.mark.parametrize("value", ["auto", "gpu", "cpu"])
def test_nproc_may_be_a_word(value):
    assert parse("--nproc", value, SCRIPT).nproc == value


@pytest.mark.parametrize(
    ("words", "program"),
    [
        ([SCRIPT, "-m", "--"], Program("script", SCRIPT, ("-m", "--"))),
        (["--", SCRIPT, "a"], Program("script", SCRIPT, ("a",))),
        (["-m", "pkg.mod", "--help"], Program("module", "pkg.mod", ("--help",))),
        (["-m", "--nproc", "2", "pkg.mod"], Program("module", "pkg.mod", ())),
        (["--no-python", "sh", "-c", ":"], Program("program", "sh", ("-c", ":"))),
        ([], Program("bundled", "", ())),
        (["--", "--steps", "3"], Program("bundled", "", ("--steps", "3"))),
    ],
)
def test_the_workers_command_begins_at_the_first_word_that_is_not_ours(words, program):
    assert parse(*words).program == program


def test_the_interpreter_is_ours_unless_PYTHON_EXEC_names_another():
    assert parse(SCRIPT).python == "python"
    assert cli.parse([SCRIPT], {"PYTHON_EXEC": "other"}, "python").python == "other"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nproc", "0", SCRIPT], "type --nproc 2"),
        (["--nproc", "many", SCRIPT], "type --nproc 2"),
        (["--nproc", "-1", SCRIPT], "type --nproc 2"),
        (["--nproc", "²", SCRIPT], "type --nproc 2"),
        (["--nproc"], "--nproc needs a value"),
        (["--nprocs", "2", SCRIPT], "did you mean --nproc?"),
        (["--steps", "20"], "spawnlaunch -- --steps 20"),
        (["no_such_script.py"], "-m no_such_script.py for a module"),
        (["-m"], "type spawnlaunch -m package.module"),
        (["--no-python"], "type spawnlaunch --no-python ./program"),
        (["--no-python", "no-such-program"], "is not on PATH"),
        (["--no-python", SCRIPT], "is not an executable file"),
        (["-m", "--no-python", "x"], "exclude each other"),
        (["--local-rank-arg", "hyphen"], "the bundled training loop reads LOCAL_RANK"),
    ],
)
def test_wrong_use_exits_2_with_one_line_that_says_what_to_type(words, said):
    done = launch(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("spawnlaunch: error: ")
    assert said in line


def test_help_is_a_page_on_stdout():
    done = launch("--help")
    assert done.returncode == 0
    assert done.stderr == ""
    assert max(map(len, done.stdout.splitlines())) <= 100


FLAGS = """
-h --help --version
--nproc -m --no-python --oversubscribe --virtual-local-rank --local-rank-arg
--bind --reserve-cpus --smt --threads --mem-bind --widen --quiet
--nnodes --node-rank --master-addr --master-port --master-suffix --standalone
--rdzv-endpoint --rdzv-backend --rdzv-id --world-size --local-world-size --rewrite-slurm-env
--grace --redirects --log-dir --local-ranks-filter --ranks-filter --no-prefix
--explain --sysfs-root --allowed-cpus
--tee --preload --result --max-restarts --restart-window --no-restart-status
--timeout --hang-timeout --on-hang --stack-on-usr2
"""


def test_no_flag_appears_unnoticed():
    _, flags = cli._build()
    assert sorted(flags) == sorted(FLAGS.split())
