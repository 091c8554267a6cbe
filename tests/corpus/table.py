"""The programs: a row for each, with the command line behind the launcher's name.

What a program is, and its source, stand in the docstring of its script; for somebody else's script,
and for another way to start one, they stand in the row.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

SCRIPTS = Path(__file__).parent / "scripts"
ACCELERATE = "{accelerate}/test_utils/scripts"
TUTORIAL = "PyTorch's documentation, torchrun (docs/source/elastic/run.rst)"
LAUNCH = "PyTorch's documentation, torch.distributed.launch"
NOTHING: Mapping[str, str] = MappingProxyType({})


class Program(NamedTuple):
    """What is started, and what of it may differ."""

    name: str
    line: str  # {here} are our scripts, {accelerate} its package, {python} and {dir} as they say
    what: str = ""
    source: str = ""
    program: str = "torchrun"  # or "launch", torch.distributed.launch
    environ: Mapping[str, str] = NOTHING
    stdin: str = ""
    status: int = 0  # under torchrun
    is_client: bool = False  # it needs the packages of the group clients
    again: bool = False  # its last words, `final`, are the same when workers were killed meanwhile
    # Files of which only the name is compared: patterns, and why.
    varying: Mapping[str, str] = NOTHING
    # What differs ("status", "lines" or "files"), and the row of docs/torchrun.md that says why.
    differs: Mapping[str, str] = NOTHING

    def __str__(self) -> str:
        return self.name

    @property
    def script(self) -> str:
        """The line without the launcher's flags."""
        return self.line[self.line.index("{here}") :]


def ours(name: str, flags: str = "", args: str = "", size: int = 2, **others: object) -> Program:
    """A script of ours, with the flags that people type most."""
    words = (f"--standalone --nproc-per-node={size}", flags, f"{{here}}/{name}.py", args)
    return Program(name, " ".join(filter(None, words)), **others)  # type: ignore[arg-type]


def of_library(name: str, args: str = "", **others: object) -> Program:
    return ours(name, args=args, is_client=True, **others)


def of_accelerate(name: str, what: str) -> Program:
    line = f"{TWO} {ACCELERATE}/{name}.py"
    source = f"huggingface/accelerate, test_utils/scripts/{name}.py, the installed one"
    return Program(f"accelerate_{name}", line, what, source, is_client=True,
                   environ={"ACCELERATE_USE_CPU": "true"})  # fmt: skip


TWO = "--standalone --nproc-per-node=2"
SAVE_ID = {"*.metadata": "each save has a random id in it"}
PROGRAMS = [
    ours("ddp", again=True),
    ours("averaged", again=True),
    ours("imagenet", again=True),
    ours("snapshot", args="4 1 --batch_size 16", again=True),
    ours("nanogpt", again=True),
    ours("fsdp2", again=True),
    ours("fsdp1"),
    ours("tensor_parallel", again=True),
    ours("mesh_2d", size=4),
    ours("pipeline"),
    ours("zero", again=True),
    ours("hook_fp16", again=True),
    ours("hook_powersgd", again=True),
    ours("local_sgd", again=True),
    ours("join", again=True),
    ours("unused", again=True),
    ours("contrastive", again=True),
    ours("compiled"),
    ours("sampler", again=True),
    ours("loaders", again=True),
    ours("collectives", again=True),
    ours("objects", again=True),
    ours("ring", again=True),
    ours("subgroups", size=4),
    ours("store", again=True),
    ours("monitored"),
    ours("rpc_server", "--role=server", size=3),
    ours("checkpoint", varying=SAVE_ID, again=True),
    ours("spawning"),
    ours("references", again=True),
    ours("zero_first"),
    ours("launched", "--max-restarts=2 --role=trainer"),
    ours("flaky", "--max-restarts=3"),
    ours(
        "record",
        environ={"TORCHELASTIC_ERROR_FILE": "{dir}/error.json"},
        varying={"error.json": "it has a time and a traceback; its message was compared"},
        status=1,
    ),
    Program(
        "record_again",
        f"{TWO} --max-restarts=1 {{here}}/record.py",
        "The same error, which another attempt does not mend",
        TUTORIAL,
        status=1,
    ),
    ours("status", args="0"),
    Program(
        "status_3",
        f"{TWO} {{here}}/status.py 3",
        "The same with status 3",
        TUTORIAL,
        status=1,
        differs={"status": "exit status"},
    ),
    ours("arguments", args="--flag '' 'a b' '*' --path=rank-${local_rank} -x=$HOME --nnodes=3"),
    ours("local_rank", args="--typed a b"),
    Program(
        "local_rank_launch",
        f"{TWO} {{here}}/local_rank.py --typed c",
        "The same, where the launcher adds `--local-rank`",
        LAUNCH,
        "launch",
    ),
    Program(
        "local_rank_env",
        f"{TWO} --use-env {{here}}/local_rank.py",
        "The same with `--use-env`, which adds nothing",
        LAUNCH,
        "launch",
    ),
    ours("reading", stdin="of the shell\nthat started it\n"),
    Program(
        "script_on_stdin",
        "--nproc-per-node=1 -",
        "The script itself is on stdin",
        "Python's documentation, command line, `-`",
        stdin="import os\nprint('rank', os.environ['RANK'], __name__)\n",
    ),
    Program(
        "module",
        f"{TWO} -m package.train --epochs 3",
        "A module of a package, which imports another of it by a relative name",
        "pytorch/torchtitan, run_train.sh",
        environ={"PYTHONPATH": "{root}:{here}"},
    ),
    Program(
        "no_python",
        f"{TWO} --no-python sh {{here}}/of_a_shell.sh {{python}} --epochs 3",
        "A shell's script that looks at the rank, and becomes Python",
        TUTORIAL + ", `--no-python`",
    ),
    of_accelerate("test_script", "Accelerate's own test: states, loaders, training, gathering"),
    of_accelerate("test_ops", "Accelerate's own test: gather, broadcast, pad, reduce"),
    of_accelerate("test_sync", "Accelerate's own test: gradients with and without a sync"),
    of_library("accelerate_nlp", varying={"state/*": "states of generators, by clock and memory"}),
    of_library("hf_classify", varying={"out/training_args.bin": "it names a host, and times"}),
    of_library("hf_resume", varying={"out/*": "it names a host, and times"}),
    of_library("lightning_ddp", varying={"saved/*": "it has a path"}),
    of_library("lightning_fabric"),
    of_library("metrics"),
    of_library(
        "speechbrain_recipe",
        "hparams.yaml --distributed_backend=gloo --device=cpu --lr=0.1",
        environ={"PYTHONPATH": "{root}:{root}/tests/clients/stand_in"},
        varying={"save/*": "it has a time"},
    ),
]


def described(program: Program) -> tuple[str, str]:
    """What it is, and its source."""
    if program.what:
        return program.what, program.source
    (script,) = re.findall(r"\{here\}/(\w+\.py)", program.line)
    about = ast.get_docstring(ast.parse((SCRIPTS / script).read_text())) or ""
    what, _, source = about.partition("Source: ")
    return " ".join(what.split()).rstrip("."), source.partition("\n")[0]


def accelerate() -> Path:
    """Where its package is; it is not imported."""
    spec = find_spec("accelerate")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent
