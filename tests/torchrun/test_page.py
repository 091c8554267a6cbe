"""docs/torchrun.md has every flag and variable of the torch that is installed."""

import ast
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from spawnlaunch.cli import torchrun
from tests.support.launching import ROOT
from tests.support.required import require_packages

require_packages("torch")

PAGE = (ROOT / "docs" / "torchrun.md").read_text()
TORCH = Path(str(find_spec("torch").origin)).parent / "distributed"  # to import it takes seconds
OF_WORKERS = {"LOCAL_RANK", "TORCH_WORKER_SERVER_SOCKET"}  # read in workers, or in an example
READ = re.compile(r"""(?:getenv|environ(?:\.get)?)[(\[]\s*["']([A-Z_]+)["']""")
NAMED = re.compile(r"""^(TORCH\w+) = \(?\s*["']\1["']""", re.MULTILINE)


def table(title: str) -> str:
    """The first column of the table below this title."""
    text = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return "\n".join(line.split(" |")[0] for line in text.splitlines() if line.startswith("|"))


def flags_of_torch() -> Iterator[str]:
    """As its parsers spell them, with hyphens."""
    for name in ("run.py", "launch.py"):
        for call in ast.walk(ast.parse((TORCH / name).read_text())):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "parser.add_argument":
                words = [each.value for each in call.args if isinstance(each, ast.Constant)]
                yield from (word.replace("_", "-") for word in words if word.startswith("-"))


def variables_of_torch() -> set[str]:
    """That the sources of its launcher name."""
    files = [TORCH / "run.py", *TORCH.glob("launcher/*.py"), *TORCH.glob("elastic/**/*.py")]
    text = "\n".join(file.read_text() for file in files)
    return {*READ.findall(text), *NAMED.findall(text)} - OF_WORKERS


def test_every_flag_of_torchrun_is_in_the_table_and_no_other():
    assert set(re.findall(r"`(-[-a-z]+)`", table("Flags"))) == {*flags_of_torch()}


def test_every_variable_that_torchrun_reads_is_in_the_table():
    assert variables_of_torch() <= set(re.findall(r"`([A-Z_]+)`", table("Variables")))


def test_names_are_cut_short_among_all_of_torchruns():
    long_names = {name for name in flags_of_torch() if name.startswith("--")}
    assert {*torchrun.TORCHRUN} - {"--help"} == long_names
