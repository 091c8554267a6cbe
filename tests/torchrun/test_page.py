"""docs/torchrun.md has every flag and variable of the torch that is installed."""

import re
from pathlib import Path

import torch.distributed.launcher.api
import torch.distributed.run

from spawnlaunch.torchrun import names
from tests.support.launching import ROOT

PAGE = (ROOT / "docs" / "torchrun.md").read_text()
OF_WORKERS = {"LOCAL_RANK", "TORCH_WORKER_SERVER_SOCKET"}  # read in workers, or in an example
READ = re.compile(r"""(?:getenv|environ(?:\.get)?)[(\[]\s*["']([A-Z_]+)["']""")
NAMED = re.compile(r"""^(TORCH\w+) = \(?\s*["']\1["']""", re.MULTILINE)


def table(title: str) -> str:
    """The first column of the table below this title."""
    text = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return "\n".join(line.split(" |")[0] for line in text.splitlines() if line.startswith("|"))


def flags_of_torch() -> set[str]:
    """As its parser spells them, with hyphens; and the one of torch.distributed.launch."""
    actions = torch.distributed.run.get_args_parser()._actions
    typed = {name.replace("_", "-") for action in actions for name in action.option_strings}
    return {*typed, "--use-env"} - {"-h", "--help"}


def variables_of_torch() -> set[str]:
    """That the sources of its launcher name."""
    top = Path(torch.distributed.run.__file__).parent
    files = [top / "run.py", *(top / "launcher").rglob("*.py"), *(top / "elastic").rglob("*.py")]
    text = "\n".join(file.read_text() for file in files)
    return {*READ.findall(text), *NAMED.findall(text)} - OF_WORKERS


def test_every_flag_of_torchrun_is_in_the_table_and_no_other():
    assert set(re.findall(r"`(-[-a-z]+)`", table("Flags"))) == flags_of_torch()


def test_every_variable_that_torchrun_reads_is_in_the_table():
    assert variables_of_torch() <= set(re.findall(r"`([A-Z_]+)`", table("Variables")))


def test_names_are_cut_short_among_all_of_torchruns():
    long_names = {name for name in flags_of_torch() if name.startswith("--")}
    assert {*names.TORCHRUN} - {"--help"} == long_names
