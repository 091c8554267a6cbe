r"""Find words of a command line that look right and are wrong, and name the remedy.

    say.py\r             a line ending of Windows
    ' ', ' # comment'    text after a backslash at the end of a line
    \u2014nproc           a dash or a blank of Unicode, as a text editor may insert it
    python say.py        an interpreter, a shell or another launcher in place of the script
    run.sh, a.out        a shell script or a binary as the script

Imported only where a script does not exist or does not end in .py, and after an error.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import unicodedata
from collections.abc import Mapping, Sequence

from spawnlaunch.base import errors, reading
from spawnlaunch.cli import flags

PYTHONS = frozenset(("python", "pythonw", "pypy", "ipython"))  # without a version
SHELLS = frozenset(("sh", "bash", "dash", "ash", "zsh", "ksh", "csh", "tcsh", "fish"))
INTERPRETERS = SHELLS | {"perl", "ruby", "node", "Rscript", "julia", "lua", "php", "make"}
LIKE_OURS = frozenset(("torchrun", "spawnlaunch"))  # launchers that take the same flags
LAUNCHERS = LIKE_OURS | {"accelerate", "deepspeed", "horovodrun", "mpirun", "mpiexec", "srun"}
LAUNCHER_MODULES = frozenset(("torch.distributed.run", "torch.distributed.launch", "spawnlaunch"))
BINARIES = (b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")  # Linux, Windows, macOS
DASHES = ("Pd",)  # categories of Unicode: dashes, blanks, and invisible characters
BLANKS, INVISIBLE = ("Zs", "Zl", "Zp"), ("Cf",)
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


def check(word: str, args: Sequence[str], before: Sequence[str]) -> None:
    """Raise UsageError where the word in the place of the script cannot be a script.

    `before` are the words before it, and `args` those after it.
    """
    name = os.path.basename(word)
    is_there = os.path.exists(word)
    if not is_there:
        _check_characters(word, args, before)
    head = _head(word) if is_there else b""
    is_program = not is_there or head.startswith(BINARIES) or os.path.isabs(word)
    if is_program and name.rstrip("0123456789.") in PYTHONS:
        raise errors.UsageError(_of_python(word, args, before))
    if is_program and name in SHELLS and args:
        line = typed(*before, "--no-python", word, *args)
        raise errors.UsageError(f"{word} is a shell, and a script is Python's; type {line}")
    if is_program and name in LAUNCHERS:
        raise errors.UsageError(_of_launcher(word, args, before))
    if is_there:
        _check_content(word, head, args, before)
    elif os.sep not in word and shutil.which(word) and word not in flags.PROGRAMS:
        line = typed(*before, "--no-python", word, *args)
        raise errors.UsageError(
            f"{word} is a program on PATH, and no script of Python's; type {line}"
        )


def typed(*words: str) -> str:
    """The launcher's command line with these words."""
    return f"{flags.HERE} {shlex.join(words)}"


def _of_python(word: str, args: Sequence[str], before: Sequence[str]) -> str:
    rest = [*args]
    while rest and rest[0] == "-u":  # workers always run with -u
        del rest[0]
    if rest[:1] == ["-m"] and rest[1:2] and rest[1] in LAUNCHER_MODULES:
        return _of_launcher(rest[1], rest[2:], before)
    seen = f"{word} stands in the place of the script"
    if not rest or (rest[0].startswith("-") and rest[0] not in ("-m", "-")):
        line = typed(*before, "--no-python", word, *args)
        return f"{seen}; with flags of its own it is a program: type {line}"
    other = os.path.isabs(word) and os.path.dirname(word) != os.path.dirname(sys.executable)
    more = f"; to have {word}, put PYTHON_EXEC={word} before it" if other else ""
    line = typed(*before, *rest)
    return f"{seen}, and workers run {sys.executable} without that; type {line}{more}"


def _of_launcher(word: str, args: Sequence[str], before: Sequence[str]) -> str:
    rest = [*args]
    if os.path.basename(word) not in LIKE_OURS | LAUNCHER_MODULES:  # its flags may differ
        at = next((i for i, arg in enumerate(rest) if arg.endswith(".py")), len(rest))
        rest = rest[at:] or ["SCRIPT"]
    return f"{word} is a launcher too, and would start workers in each worker; type " + typed(
        *before, *rest
    )


def _check_content(word: str, head: bytes, args: Sequence[str], before: Sequence[str]) -> None:
    """Raise UsageError for a file that Python cannot run: a binary, or another language's."""
    path = word if os.sep in word else os.path.join(os.curdir, word)
    name = ""
    if head.startswith(b"#!"):
        name = _interpreter(head)
        if name in SHELLS and _is_python_too(head):
            return
    elif not head.startswith(BINARIES):
        suffix = os.path.splitext(word)[1].removeprefix(".")
        name = suffix if suffix in SHELLS else ""
    if name not in INTERPRETERS and not head.startswith(BINARIES):
        return
    what = f"a script for {name}" if name else "a binary"
    program = [path] if os.access(word, os.X_OK) and (head[:2] == b"#!" or not name) else []
    if not program and not name:
        line = typed(*before, "--no-python", path, *args)
        raise errors.UsageError(
            f"{word} is {what}, and no script of Python's; type chmod +x {path}, and {line}"
        )
    line = typed(*before, "--no-python", *(program or [name, path]), *args)
    raise errors.UsageError(f"{word} is {what}, and no script of Python's; type {line}")


def _head(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(512)
    except OSError:  # a directory, or an error that Python reports
        return b""


def _interpreter(head: bytes) -> str:
    """The name of the interpreter in the first line."""
    words = head.splitlines()[0][2:].decode(errors="replace").split()
    names = [os.path.basename(each) for each in words if "=" not in each and each[:1] != "-"]
    return next((each for each in names if each != "env"), "")


def _is_python_too(head: bytes) -> bool:
    """Whether a shell script only starts Python, which reads the same file: '''exec' python."""
    second = [*head.splitlines(), b"", b""][1].lstrip()
    return second.startswith((b"'''", b'"""', b'":"'))


def _check_characters(word: str, args: Sequence[str], before: Sequence[str]) -> None:
    """Raise UsageError for a word that the shell, an editor or Windows has changed."""
    check_returns(word, "the script ")
    plain, strange = _plain(word)
    rest = f"; type {typed(*before, *args)}" if args and os.path.exists(args[0]) else ""
    if not plain.strip():
        raise errors.UsageError(
            f"the script is a blank word {reading.excerpt(word)}, as a backslash gives that has a "
            f"blank behind it and not the end of the line; remove that blank{rest}"
        )
    if plain.lstrip().startswith("#"):
        raise errors.UsageError(
            f"the script is {reading.excerpt(word)}, a comment behind a backslash, which is no "
            f"comment there; remove it{rest}"
        )
    if strange:
        line = typed(*before, *_mended(word).split(), *args)
        raise errors.UsageError(f"{reading.excerpt(word)} has {strange}; type {line}")
    if word != word.strip() and os.path.exists(word.strip()):
        line = typed(*before, word.strip(), *args)
        raise errors.UsageError(f"{reading.excerpt(word)} has a blank at an end; type {line}")


def of_flag(word: str) -> str:
    """Return the error about strange characters in an unknown flag; "" where it has none."""
    check_returns(word, "")
    _, strange = _plain(word)
    return f"unknown flag {word}: it has {strange}; type {_mended(word)}" if strange else ""


def _plain(word: str) -> tuple[str, str]:
    """Return the word with plain hyphens and blanks, and the names of the strange characters."""
    text, strange = "", ""
    for each in word:
        kind = unicodedata.category(each)
        is_dash = each == MINUS or kind in DASHES
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
    if plain.startswith("-") and len(name.split("=")[0].split()[0] if name else "") > 1:
        return f"--{name}"
    return plain


def check_returns(text: str, what: str) -> None:
    """Raise UsageError for a word with a carriage return."""
    if "\r" in text:
        clean = text.replace("\r", "")
        raise errors.UsageError(
            f"{what}{reading.excerpt(text)} has {RETURNS}; type {shlex.quote(clean)}; {MENDED}"
        )


def check_variables(environ: Mapping[str, str]) -> None:
    """Raise UsageError for a variable of a launch that ends in a carriage return."""
    for name, value in environ.items():
        if value.endswith("\r") and name.startswith(READ):
            raise errors.UsageError(
                f"{name}={reading.excerpt(value)} has {RETURNS}; type export "
                f"{name}={shlex.quote(value.rstrip())}; {MENDED}"
            )


def of_interpreter(path: str, first: bytes) -> str:
    """The error about a program with a carriage return in the name of its interpreter."""
    line = reading.excerpt(first.rstrip(b"\n").decode(errors="replace"))
    return (
        f"program {path!r} begins with {line}, which has {RETURNS}; type sed -i 's/\\r$//' "
        f"{shlex.quote(path)}"
    )
