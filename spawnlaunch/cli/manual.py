"""Make the pages that flags ask for from the table of flags: --help, --version, --completion.

Imported only for such a page.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from textwrap import fill

from spawnlaunch import __version__
from spawnlaunch.base import errors
from spawnlaunch.cli import flags, values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NARROWEST, WIDEST = 80, 100  # columns; on a wide terminal longer lines are hard to read
SLURM_S = 10.0  # for srun to print its version
INDENT = 26  # columns before the help of a flag

_wrapped = partial(fill, break_on_hyphens=False, break_long_words=False)

USAGE = """\
usage: spawnlaunch [flags] [script | -m module] [args...]
       spawnlaunch [flags] [-- flags of the bundled training loop]
       spawnlaunch check | bench | train | top | report | scripts"""

SHORT = """\
usage: {here} [flags] [script | -m module] [args...]

  {here} --nproc 2 train.py     a script of yours, on two workers of this machine
  {here} --nproc gpu train.py   on all its GPUs
  {here} --nproc 2              the bundled training loop, which writes to runs/
  {here} --help                 all flags, and the other programs
"""

# Names of variables in which managers, mpirun and torchrun give a rank or a size.
RANK_OR_SIZE = re.compile(
    r"(.*_)?(RANK|RANKID|LOCALRANKID|PROCID|LOCALID|NODEID|NODENUM|COMPLETION_INDEX"
    r"|WORLD_SIZE|LOCAL_SIZE|PMI_SIZE|JOB_SIZE|NAMESPACE_SIZE|UNIVERSE_SIZE|LOCALNRANKS"
    r"|NTASKS(_PER_NODE)?|NPROCS|NUM_TASKS|TASKS_PER_NODE|NNODES|NUM_NODES|JOB_NUM_NODES"
    r"|NPROC_PER_NODE|NUMPROC|NSLOTS|NHOSTS|PBS_NP)"
)

SECTIONS = {
    "": "",
    flags.WORKERS: "",
    flags.BINDING: "",
    flags.NODES: (
        "Under Slurm, Open MPI, MPICH, Intel MPI, PALS, Flux and Kubeflow rank, sizes, "
        "address and port are derived. If one of them hides a value (most MPI launchers hide where "
        "rank 0 runs), an error names the flag."
    ),
    flags.ENDING: (
        "Most of these need a launcher that stays above its workers; under srun, use --nproc."
    ),
    flags.OUTPUT: "",
}

PURPOSE = (
    "Start PyTorch workers on this machine, each pinned to its own CPUs, and watch them: when one "
    "fails the others are stopped, and its exit status becomes the launcher's. A task that srun or "
    "mpirun has started as a rank pins itself and becomes the worker. Everything after the script "
    "or module goes to it verbatim. With neither, the bundled training loop runs. You may write _ "
    "for - in a flag's name. Where PATH has no spawnlaunch, run python -m spawnlaunch."
)

EXAMPLES = """\
examples:
  spawnlaunch --nproc gpu train.py --lr 3e-4   a script of yours, on all GPUs
  spawnlaunch --nproc 8 -m my_package.train    a module of yours
  spawnlaunch --nproc 4 --no-python ./a.out    any program
  spawnlaunch --explain --nproc 8 train.py     what that does; starts nothing
  spawnlaunch --nproc 2 --no-prefix a.py | jq  output for another program
  srun --kill-on-bad-exit=1 --cpu-bind=none -n 16 spawnlaunch train.py

other programs, each with a --help of its own:
  spawnlaunch --nproc 8 check      what each rank really got
  spawnlaunch --nproc 8 train      the bundled training loop
  spawnlaunch bench                what pinning is worth here
  spawnlaunch top                  what every rank does now
  spawnlaunch report DIR           a page of what --record has kept
  spawnlaunch scripts              batch scripts and manifests to copy
"""

STATUS = (
    "exit status: 0 when every worker ended with 0, else that of the first worker that failed "
    "(128 + n when signal n ended it). When signal n ended the launcher: 128 + n, or the one "
    "status with which all workers ended by themselves. 124 after --timeout and "
    "--on-hang kill. 74 when all went well but output could not be written, as on a full disk. "
    "69 when a node was lost, or never came. 2 for wrong use of this command."
)


def refuse_without_words(environ: Mapping[str, str]) -> None:
    """Raise NoWords where no variable gives a rank or a size, so that nothing was asked for."""
    if not any(value and RANK_OR_SIZE.fullmatch(name) for name, value in environ.items()):
        raise flags.NoWords(SHORT.format(here=flags.HERE))


def page_of(flag: str, value: str, *, is_short: bool) -> str:
    """Return the text for a flag that asks for a page."""
    if flag == "--completion":
        return completion(value)
    return version() if flag == "--version" else page(is_short)


def version() -> str:
    """Return the line of --version, with all versions that a bug report needs."""
    from importlib import metadata

    versions = [f"Python {sys.version.partition(' ')[0]}"]
    try:
        versions.append(f"torch {metadata.version('torch')}")
    except metadata.PackageNotFoundError:
        versions.append("no torch")
    versions += _slurm()
    return f"spawnlaunch {__version__} ({', '.join(versions)})"


def _slurm() -> Iterator[str]:
    """Yield the version of Slurm, as `Slurm 24.05.3`, where it is installed."""
    import subprocess

    try:
        done = subprocess.run(
            ("srun", "--version"), capture_output=True, text=True, timeout=SLURM_S, check=True
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return
    if words := done.stdout.split():
        yield f"Slurm {words[-1]}"


def page(is_short: bool) -> str:
    """Return the page of --help or, `is_short`, of -h; as wide as the terminal within bounds."""
    width = min(max(shutil.get_terminal_size((NARROWEST, 0)).columns, NARROWEST), WIDEST)
    flags_of = _names(width) if is_short else _lines(width)
    return "\n".join((USAGE, "", _wrapped(PURPOSE, width), "", EXAMPLES, *flags_of))


def _names(width: int) -> Iterator[str]:
    yield "flags, each explained by spawnlaunch --help:"
    for section in SECTIONS:
        names = (flag.name for flag in flags.FLAGS if flag.section == section)
        words = f"{section or 'general'}: {' '.join(names)}"
        yield _wrapped(words, width, initial_indent="  ", subsequent_indent="    ")


def _lines(width: int) -> Iterator[str]:
    for section, text in SECTIONS.items():
        yield f"{section or 'options'}:"
        if text:
            yield _wrapped(text, width, initial_indent="  ", subsequent_indent="  ")
            yield ""
        for flag in flags.FLAGS:
            if flag.section == section:
                yield _row(flag, width)
        yield ""
    yield _wrapped(STATUS, width)


def _row(flag: flags.Flag, width: int) -> str:
    """Format a flag and its help: on the same line where there is room, else below."""
    between = "" if flag.shown.startswith("[=") else " "
    words = "" if callable(flag.read) or not flag.read else f"{{{','.join(flag.read)}}}"
    short = [name for name in flag.also if len(name) == 2]
    head = f"  {', '.join([*short, flag.name])}{between}{flag.shown or words}".rstrip()
    long = "".join(f"; also {name}" for name in flag.also if len(name) > 2)
    margin = " " * INDENT
    body = _wrapped(flag.help + long, width, initial_indent=margin, subsequent_indent=margin)
    return f"{head:{INDENT}}{body[INDENT:]}" if len(head) < INDENT - 1 else f"{head}\n{body}"


# The words to offer for flags with readers that accept other text as well.
WORDS = {"--nproc": ("auto", "gpu", "cpu"), "--bind": values.NAMES}


def completion(shell: str) -> str:
    """Return the script by which a shell completes flags. Raises UsageError without shtab."""
    import argparse  # only for shtab

    try:
        import shtab
    except ImportError:
        raise errors.UsageError(
            "--completion needs shtab, which is not installed; run pip install "
            "'spawnlaunch[completion]'"
        ) from None
    files = {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY}
    parser = argparse.ArgumentParser("spawnlaunch", add_help=False)
    for flag in flags.FLAGS:
        options: dict[str, Any] = {"action": "store_true"}
        if flag.read and flag.bare_value is None:
            words = WORDS.get(flag.name) or (() if callable(flag.read) else tuple(flag.read))
            options = {"choices": words or None}
        text = flag.help.replace("%", "%%")
        action: Any = parser.add_argument(flag.name, *flag.also, help=text, **options)
        if flag.shown in files:
            action.complete = files[flag.shown]
    program: Any = parser.add_argument("script", nargs="*")
    program.complete = shtab.FILE
    return str(shtab.complete(parser, shell))
