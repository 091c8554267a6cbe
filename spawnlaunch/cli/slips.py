r"""Find words of a command line that look right and are wrong, and name the remedy.

    say.py\r             a line ending of Windows
    ' ', ' # comment'    text after a backslash at the end of a line
    \u2014nproc           a dash or a blank of Unicode, as a text editor may insert it
    python say.py        an interpreter, a shell or another launcher in place of the script
    run.sh, a.out        a shell script or a binary as the script
    --hostfile, --nprocs a flag of another launcher, or a mistyped one

Imported only where a script does not exist or does not end in .py, and after an error.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from spawnlaunch.base import errors, reading
from spawnlaunch.cli import flags, torchrun

PYTHONS = frozenset(("python", "pythonw", "pypy", "ipython"))  # without a version
SHELLS = frozenset(("sh", "bash", "dash", "ash", "zsh", "ksh", "csh", "tcsh", "fish"))
INTERPRETERS = SHELLS | {"perl", "ruby", "node", "Rscript", "julia", "lua", "php", "make"}
# Launchers that take the same flags.
SAME_FLAGS = frozenset(
    ("torchrun", "spawnlaunch", "torch.distributed.run", "torch.distributed.launch")
)
LAUNCHERS = SAME_FLAGS | {"accelerate", "deepspeed", "horovodrun", "mpirun", "mpiexec", "srun"}
BINARIES = (b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")  # Linux, Windows, macOS
BLANKS, INVISIBLE = ("Zs", "Zl", "Zp"), ("Cf",)  # categories of Unicode
MINUS = "\u2212"
RETURNS = "a carriage return (Windows line endings)"
MENDED = "the file that has the line is mended by sed -i 's/\\r$//' FILE"
# Prefixes of the variables that a launch or its workers read.
READ = (
    "RANK", "WORLD_SIZE", "LOCAL_", "NODE_RANK", "NNODES", "GROUP_", "ROLE_", "MASTER_", "PET_",
    "TORCH_", "TORCHELASTIC_", "SPAWNLAUNCH_", "SLURM_", "SLURMD_", "PMI", "OMPI_", "MPI_", "PBS_",
    "LSB_", "OAR_", "FLUX_", "CUDA_", "HIP_", "ROCR_", "ZE_", "NCCL_", "GLOO_", "OMP_", "MKL_",
    "KMP_", "PYTHON", "TMPDIR", "VIRTUAL_ENV", "CONDA_PREFIX",
)  # fmt: skip

# The replacement for a flag of accelerate, deepspeed, mpirun or srun. Long names have two hyphens
# here, and users may write one; TYPED stands for the name as the user wrote it.
_WORKERS = "use --nproc N, the number of workers on each machine"
_NODES = "use --nnodes N, and on each machine its --node-rank and the same --master-addr"
_HOSTS = (
    "workers are started on this machine only, and mpirun starts one process per rank on all; "
    f"run mpirun TYPED HOSTS {flags.HERE} SCRIPT, or on each host {flags.HERE} --nnodes N "
    "--node-rank N --master-addr HOST SCRIPT"
)
OF_OTHERS = {
    **dict.fromkeys(
        ("-n", "--np", "--ntasks", "--num-processes", "--num-gpus", "--gpus"), _WORKERS
    ),
    **dict.fromkeys(("-N", "--nodes", "--num-machines", "--num-nodes"), _NODES),
    "--machine-rank": "use --node-rank N",
    "--main-process-ip": "use --master-addr HOST",
    "--main-process-port": "use --master-port PORT",
    **dict.fromkeys(("--hostfile", "--host", "-H"), _HOSTS),
    "-x": f"workers inherit the environment of this command; run NAME=VALUE {flags.HERE}",
    "--gpu-ids": f"run CUDA_VISIBLE_DEVICES=0,1 {flags.HERE}",
    "--mixed-precision": f"run ACCELERATE_MIXED_PRECISION=bf16 {flags.HERE}",
    "--multi-gpu": "it means nothing here; leave it out",
}


def of_flag(word: str, rest: Sequence[str]) -> str:
    """Return the error for an unknown flag, which may contain its value, as --np=2 or -np2.

    `rest` are the words after it.
    """
    check_returns(word, "")
    unknown = f"unknown flag {word}"
    if strange := _plain(word)[1]:
        return f"{unknown}: it has {strange}; use {_mended(word)}"
    typed = word.partition("=")[0]
    name = typed.replace("_", "-").rstrip("0123456789")
    if len(name) > 2 and not name.startswith("--"):
        name = f"-{name}"
    if name in OF_OTHERS:
        return f"{unknown}: {OF_OTHERS[name].replace('TYPED', typed)}"
    if meant := torchrun.beginning(name):
        return f"{unknown}: it may be short for {' or '.join(meant)}; use the whole name"
    # A script's --model is not the --module here.
    near = get_close_matches(name, [each for flag in flags.FLAGS for each in flag.also], 1, 0.9)
    near += get_close_matches(name, [flag.name for flag in flags.FLAGS], 1, 0.75)
    if near:
        return f"{unknown}; did you mean {flags.SPELLINGS[near[0]].name}?"
    of_loop = f"for the training loop use -- {shlex.join((word, *rest))}"
    if any(each.endswith(".py") or os.path.isfile(each) for each in rest):  # a script
        of_loop = "flags of the training loop after a --"
    return (
        f"{unknown}; flags of a script go after the script, {of_loop}; for those of the launcher "
        f"run {flags.HERE} --help"
    )


def check_script(word: str, args: Sequence[str], before: Sequence[str]) -> None:
    """Raise UsageError where the word in the place of the script cannot be a script.

    `before` are the words before it, and `args` those after it.
    """
    is_there, name = os.path.exists(word), os.path.basename(word)
    if not is_there:
        _check_characters(word, args, before)
    head = _head(word) if is_there else b""
    is_binary = head.startswith(BINARIES)
    if is_binary or not is_there or os.path.isabs(word):  # a command, by its name
        if name.rstrip("0123456789.") in PYTHONS:
            _check_python(word, args, before)
        if name in LAUNCHERS:
            raise errors.UsageError(_of_launcher(name, args, before))
    program: list[str] = []
    if is_there:
        path = word if os.sep in word else os.path.join(os.curdir, word)
        interpreter = _interpreter(word, head)
        is_runnable = is_binary or (head.startswith(b"#!") and os.access(word, os.X_OK))
        if is_binary or interpreter in INTERPRETERS:
            program = [path] if is_runnable else [interpreter, path]
    elif name in SHELLS or (os.sep not in word and shutil.which(word)):
        program = [] if word in flags.PROGRAMS else [word]
    if program:
        line = typed(*before, "--no-python", *program, *args)
        raise errors.UsageError(f"{word} is not a script of Python; run {line}")


def typed(*words: str) -> str:
    """The launcher's command line with these words."""
    return f"{flags.HERE} {shlex.join(words)}"


def _check_python(word: str, args: Sequence[str], before: Sequence[str]) -> None:
    """Raise UsageError for a Python before the script, or before a module."""
    rest = list(args[1:] if args[:1] == ("-u",) else args)  # workers always run with -u
    if rest[:1] == ["-m"] and rest[1:2] and rest[1] in SAME_FLAGS:
        raise errors.UsageError(_of_launcher(rest[1], rest[2:], before))
    if not rest or (rest[0].startswith("-") and rest[0] not in ("-m", "-")):
        line = typed(*before, "--no-python", word, *args)
        raise errors.UsageError(f"{word} with flags of its own is a program; run {line}")
    is_other = os.path.isabs(word) and os.path.dirname(word) != os.path.dirname(sys.executable)
    more = f"; to have {word}, put PYTHON_EXEC={word} before it" if is_other else ""
    raise errors.UsageError(
        f"{word} is in the place of the script, and workers run {sys.executable} without that; "
        f"run {typed(*before, *rest)}{more}"
    )


def _of_launcher(name: str, args: Sequence[str], before: Sequence[str]) -> str:
    rest = [*args]
    if name not in SAME_FLAGS:  # its flags may differ
        at = next((i for i, arg in enumerate(rest) if arg.endswith(".py")), len(rest))
        rest = rest[at:] or ["SCRIPT"]
    line = typed(*before, *rest)
    return f"{name} is a launcher too, and would start workers in each worker; run {line}"


def _head(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(512)
    except OSError:  # a directory, or an error that Python reports
        return b""


def _interpreter(path: str, head: bytes) -> str:
    """The name of the interpreter in the first line, or the shell that the file's name ends in.

    "" for a shell script that only starts Python, which reads the same file: '''exec' python.
    """
    if not head.startswith(b"#!"):
        return os.path.splitext(path)[1].removeprefix(".")
    first, second = [*head.splitlines(), b""][:2]
    words = first[2:].decode(errors="replace").split()
    programs = [os.path.basename(each) for each in words if "=" not in each and each[:1] != "-"]
    name = next((each for each in programs if each != "env"), "")
    is_python_too = second.lstrip().startswith((b"'''", b'"""', b'":"'))
    return "" if name in SHELLS and is_python_too else name


def _check_characters(word: str, args: Sequence[str], before: Sequence[str]) -> None:
    """Raise UsageError for a word that the shell, an editor or Windows has changed."""
    check_returns(word, "the script ")
    plain, strange = _plain(word)
    rest = [*_mended(word).split(), *args]
    if not plain.strip():
        why, rest = "is blank, as after a backslash that is not the end of its line", [*args]
    elif plain.lstrip().startswith("#"):
        why, rest = "is a comment after a backslash, where there can be none", [*args]
    elif strange:
        why = f"has {strange}"
    elif word != word.strip() and os.path.exists(word.strip()):
        why, rest = "has a blank at an end", [word.strip(), *args]
    else:
        return
    line = typed(*before, *rest)
    raise errors.UsageError(f"the script {reading.excerpt(word)} {why}; run {line}")


def _plain(word: str) -> tuple[str, str]:
    """Return the word with plain hyphens and blanks, and the first of its strange characters."""
    text, strange = "", ""
    for each in word:
        kind = unicodedata.category(each)
        is_dash = each == MINUS or kind == "Pd"
        instead = "-" if is_dash else " " if kind in BLANKS else "" if kind in INVISIBLE else each
        if instead != each and not strange:
            place = "a hyphen" if is_dash else "a blank" if instead else "nothing"
            name = unicodedata.name(each, "a character")
            strange = f"U+{ord(each):04X} ({name}) in place of {place}"
        text += instead
    return text, strange


def _mended(word: str) -> str:
    """Return the flag as it was meant: an editor may have made one dash of two hyphens."""
    plain = _plain(word)[0].strip()
    name = plain.lstrip("-")
    is_long = len(name.partition("=")[0].partition(" ")[0]) > 1
    return f"--{name}" if plain.startswith("-") and is_long else plain


def check_returns(text: str, place: str) -> None:
    """Raise UsageError for a word with a carriage return."""
    if "\r" in text:
        clean = shlex.quote(text.replace("\r", ""))
        raise errors.UsageError(
            f"{place}{reading.excerpt(text)} has {RETURNS}; use {clean}; {MENDED}"
        )


def check_variables(environ: Mapping[str, str]) -> None:
    """Raise UsageError for a variable of a launch that ends in a carriage return."""
    for name, value in environ.items():
        if value.endswith("\r") and name.startswith(READ):
            raise errors.UsageError(
                f"{name}={reading.excerpt(value)} has {RETURNS}; export "
                f"{name}={shlex.quote(value.rstrip())}; {MENDED}"
            )


def refuse_interpreter(path: str, first: bytes) -> None:
    """Raise UsageError for a program with a carriage return in the name of its interpreter."""
    line = reading.excerpt(first.rstrip(b"\n").decode(errors="replace"))
    raise errors.UsageError(
        f"program {path!r} begins with {line}, which has {RETURNS}; run sed -i 's/\\r$//' "
        f"{shlex.quote(path)}"
    )
