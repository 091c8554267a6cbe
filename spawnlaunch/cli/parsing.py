"""Parse the command line and torchrun's variables into a Request.

Nothing else in the launcher parses argv. The flags end where the worker's command begins. From
there on every word belongs to that command, also one that looks like a flag.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from spawnlaunch.base import errors, reading
from spawnlaunch.cli import flags, values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

OF_TORCHRUN = ("PET_", "TORCH_ELASTIC_", "TORCHELASTIC_")  # prefixes of torchrun's variables
MOST_OF_LINE = 256  # bytes of a program's first line (BINPRM_BUF_SIZE of the kernel)
KINDS = {"m": "module", "no_python": "program"}  # of Program, by the flag for it


def parse(argv: Sequence[str], environ: Mapping[str, str], python: str) -> flags.Request:
    """Read the command line (without the program's name) into a Request.

    `python` is the interpreter that workers use where the environment variable PYTHON_EXEC
    (torchrun's) names no other. Raises UsageError; `--help`, `--version` and `--completion`
    raise Page; an empty command line, where no variable gives a rank or a size, raises NoWords.
    """
    if not argv:
        from spawnlaunch.cli import manual

        manual.refuse_without_words(environ)
    typed_flags, words = read_flags(argv)
    notes: list[str] = []
    names = " ".join(environ)
    if any(prefix in names for prefix in OF_TORCHRUN):
        from spawnlaunch.cli import torchrun  # few shells export such a variable

        typed_flags = [*torchrun.flags_of_variables(environ, typed_flags), *typed_flags]
        notes += torchrun.notes_on_variables(environ)
    if "\r" in "".join(environ.values()):
        from spawnlaunch.cli import slips

        slips.check_variables(environ)
    fields: dict[str, Any] = {}
    for flag, text, typed in typed_flags:
        value = read_value(flag, text, typed)
        if flag.field:
            fields[flag.field] = value
        elif value:  # a note about one of torchrun's flags that do nothing here
            notes.append(f"{typed}: {value}")
    if fields.get("log_dir") == os.devnull:  # under torchrun: no files, and all is shown
        del fields["log_dir"]
        streams = [fields.pop(name, None) for name in ("redirects", "tee")]
        if any(map(any, filter(None, streams))):
            notes.append(f"--log-dir {os.devnull}: nothing is kept in files, and all is shown")
    kinds = [kind for field, kind in KINDS.items() if fields.pop(field, False)]
    if len(kinds) > 1:
        raise errors.FlagsError("-m and --no-python exclude each other; leave one out")
    request = flags.Request(
        program=_program(words, *kinds, before=argv[: len(argv) - len(words)]),
        python=environ.get("PYTHON_EXEC") or python,
        typed_flags=tuple(typed_flags),
        sources={
            flag.name: typed
            for flag, _, typed in typed_flags
            if typed.replace("_", "-") != flag.name
        },
        notes=tuple(notes),
        **fields,
    )
    _check_together(request)
    return request


def read_flags(
    argv: Sequence[str], lenient: bool = False
) -> tuple[list[flags.FlagValue], list[str]]:
    """Split argv where the worker's command begins.

    Left: the launcher's flags, each with its text, None where it has none. Right: the worker's
    command; after "--" it may begin with a hyphen, and is then the flags of the bundled loop.
    Raises FlagsError for a wrong flag; with `lenient` it leaves that out, with the next word if
    that may be its value.
    """
    typed_flags: list[flags.FlagValue] = []
    words = list(argv)
    while words and words[0].startswith("-") and words[0] != "-":
        word = words.pop(0)
        if word == "--":
            break
        try:
            typed_flags.append(_read_flag(word, words))
        except errors.FlagsError:
            if not lenient:
                raise
            if "=" not in word and words and not words[0].startswith("-"):
                del words[0]
    return typed_flags, words


def _read_flag(word: str, after: list[str]) -> flags.FlagValue:
    """Read the flag that a word names; remove the next word from the list if it is the value."""
    typed, equals, text = word.partition("=")
    flag = flags.spelt(typed)
    if flag is None:
        from spawnlaunch.cli import torchrun  # most users use spawnlaunch's names

        typed, equals, text = torchrun.split(word)
        flag = torchrun.flag(typed)
    if flag is None:
        from spawnlaunch.cli import slips  # slow to import, and only needed here

        raise errors.FlagsError(slips.of_flag(word, after))
    if equals and not flag.read:
        usage = f"{flag.name} {text}" if flag.name == "-m" else flag.name
        raise errors.FlagsError(f"{word}: {flag.name} takes no value; use {usage}")
    if not equals and flag.bare_value is None:
        if not after:
            raise errors.FlagsError(f"{typed} needs a value; {flags.HERE} --help shows which")
        equals, text = "=", after.pop(0)
    if text == "--":
        raise errors.FlagsError(
            f"{typed} needs a value, and -- is none; {flags.HERE} --help shows which"
        )
    return flag, text if equals else None, typed


def read_value(flag: flags.Flag, text: str | None, typed: str) -> Any:
    """Read the value of a flag; `typed` is its spelling, or its variable.

    Raises UsageError, or Page.
    """
    read = flag.read
    if text and "\r" in text:
        from spawnlaunch.cli import slips

        slips.check_returns(text, f"{typed}: ")
    if text is None:
        value = flag.bare_value
    elif callable(read):
        try:
            value = read(text)
        except ValueError as error:
            raise errors.UsageError(f"{typed}: {error}") from None
    elif text in read:
        value = read[text]
    else:
        words = ", ".join(read)
        raise errors.UsageError(f"{typed}: unknown value {reading.excerpt(text)}; use {words}")
    if flag.name in ("--help", "--version", "--completion"):
        from spawnlaunch.cli import manual

        raise flags.Page(manual.page_of(flag.name, value, is_short=typed == "-h"))
    return value


def warnings(request: flags.Request, several_nodes: bool) -> list[str]:
    """The lines about flags that do less than their user may expect."""
    lines = [*request.notes]
    if request.program == ("bundled", "", ()):
        lines.append(
            "no script is named, so the bundled training loop runs and writes to runs/; for a "
            f"script of yours add its path after the flags, as in {flags.HERE} --nproc 2 train.py"
        )
    if request.program.kind == "script" and (word := request.program.target) in flags.PROGRAMS:
        lines.append(f"the file {word} here is run; for ours run python -m spawnlaunch.{word}")
    if request.nproc is None and "--nproc" in " ".join(request.program.args):
        from spawnlaunch.cli import programs

        lines += programs.after_script(request.program)
    if request.rdzv_conf:
        lines += values.find_unknown_keys(request.rdzv_conf)
    if request.need_parent:
        lines += _without_effect(request, several_nodes)
    return lines


def _without_effect(request: flags.Request, several_nodes: bool) -> Iterator[str]:
    """Yield lines about flags without effect, as they need another flag or several nodes."""
    if request.tee not in (None, values.StreamsByRank()) and request.log_dir is None:
        yield "--tee without --log-dir DIR: all is shown, and nothing is kept in files"
    if request.on_hang == flags.KILL and not request.hang_timeout_s:
        yield "--on-hang kill does nothing without --hang-timeout SECONDS"
    for flag in ("--restart-window", "--no-restart-status"):
        if flag in request.need_parent and not request.max_restarts:
            yield f"{flag} does nothing without --max-restarts N"
    if request.hang_timeout_s and several_nodes and request.no_gang:
        yield (
            "--hang-timeout: each node listens to its own ranks only, so those that never write "
            "anything seem to hang"
        )


def _check_together(request: flags.Request) -> None:
    """Raise UsageError for flags that exclude each other, or need another flag that is missing."""
    if request.preload and request.program.kind == "program":
        raise errors.FlagsError(
            "--preload is for Python, and --no-python is not; leave one of them out"
        )
    if request.preload and request.python != sys.executable:
        raise errors.UsageError(
            f"--preload forks {sys.executable}, and PYTHON_EXEC asks for {request.python}; "
            "leave one of them out"
        )
    if request.rewrite_slurm_env and request.no_rewrite_slurm_env:
        raise errors.FlagsError(
            "--rewrite-slurm-env and --no-rewrite-slurm-env exclude each other; leave one out"
        )
    if request.program.kind == "bundled" and request.local_rank_arg:
        raise errors.FlagsError(
            "no script is named, and --local-rank-arg (distributed_launch sets it) is for one; the "
            "bundled training loop reads LOCAL_RANK; name a script, or for the loop run "
            f"{flags.HERE} --nproc 2"
        )
    is_bundled = request.program.kind == "bundled" or request.program.target == "spawnlaunch.check"
    if is_bundled and not request.explain:
        from spawnlaunch.cli import programs

        programs.need_torch(request.program, request.python)
    if (request.sysfs_root != "/" or request.allowed_cpus is not None) and not request.explain:
        raise errors.FlagsError(
            "--sysfs-root and --allowed-cpus need --explain; use --explain as well"
        )
    if not os.path.isdir(request.sysfs_root):
        raise errors.UsageError(
            f"--sysfs-root {request.sysfs_root!r} is not a directory; use one that has sys and proc"
        )


def _program(words: Sequence[str], kind: str = "script", *, before: Sequence[str]) -> flags.Program:
    """Return the program that the workers run; `before` are the launcher's own arguments.

    Raises UsageError, and Instead for a program that starts no workers, or starts its own.
    """
    if not words or (words[0].startswith("-") and words[0] != "-"):  # the bundled loop
        if kind != "script":
            need = "-m needs a module" if kind == "module" else "--no-python needs a program"
            usage = "-m package.module" if kind == "module" else "--no-python ./program"
            raise errors.FlagsError(f"{need}; run {flags.HERE} {usage}")
        reading.absolute("runs", "the bundled training loop writes to")
        return flags.Program("bundled", "", tuple(words))
    target, args = words[0], tuple(words[1:])
    if not target:
        raise errors.UsageError(
            "the script is an empty word, as an unset variable gives; use its path, or "
            f"leave it out for the bundled training loop: {flags.HERE}"
        )
    if "\r" in target:
        from spawnlaunch.cli import slips

        slips.check_returns(target, f"the {kind} ")
    if kind == "program":
        _check_program(target)
    if kind != "script" or target == "-":
        return flags.Program(kind, target, args)
    is_there, is_word = os.path.exists(target), target in flags.PROGRAMS
    if not (is_word or (is_there and target.endswith(".py"))):
        from spawnlaunch.cli import slips

        slips.check_script(target, args, before)
    if is_word or not is_there:
        from spawnlaunch.cli import programs

        return programs.named(target, args, is_bare=not before)
    return flags.Program("script", target, args)


def _check_program(target: str) -> None:
    """Raise UsageError for a program that execvp would not find; PATH counts without a slash."""
    places = [""] if os.sep in target else os.get_exec_path()
    paths = (os.path.join(place, target) for place in places)
    path = next((path for path in paths if os.access(path, os.X_OK)), None)
    if path is None:
        why = f"is not on PATH; use its path, as in {flags.HERE} --no-python ./program"
        if os.sep in target:
            why = "is not an executable file; run chmod +x where it is one, or leave --no-python "
            why += "out for a script of Python's"
        raise errors.UsageError(f"program {target!r} {why}")
    with suppress(OSError), open(path, "rb") as file:
        first = file.readline(MOST_OF_LINE)
        if first.startswith(b"#!") and first.endswith(b"\r\n"):
            from spawnlaunch.cli import slips

            slips.refuse_interpreter(path, first)
