"""The command line: flags in, a Request out.

Nothing else in the launcher parses argv, and settings from the environment are read here too.
The flags end where the worker's command begins. From there on every word belongs to that command,
also one that looks like a flag.
"""

from __future__ import annotations

import os
import sys

from spawnlaunch import errors, flags, reading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


def parse(argv: Sequence[str], environ: Mapping[str, str], python: str) -> flags.Request:
    """Read the command line (without the program's name) into a Request.

    `python` is the interpreter that workers use where the environment variable PYTHON_EXEC
    (torchrun's) names no other. Raises UsageError; `--help` and `--version` raise Page.
    """
    given, words = _cut(argv)
    extra: dict[str, Any] = {}
    names = " ".join(environ)
    if "PET_" in names or "TORCH_ELASTIC_" in names or "TORCHELASTIC_" in names:
        from spawnlaunch.torchrun import variables  # few shells export any of them

        given = [*variables.given(environ, given), *given]
        extra = variables.fields(environ)
    fields: dict[str, Any] = {}
    notes: list[str] = []
    for flag, text, typed in given:
        value = _value(flag, text, typed)
        if flag.field:
            fields[flag.field] = value
        elif value:  # of torchrun's flags that do nothing here
            notes.append(f"{typed}: {value}")
    if fields.get("log_dir") == os.devnull:  # torchrun keeps no files then, and shows everything
        given_up = [fields.pop(name, None) for name in ("log_dir", "redirects", "tee")]
        if any(map(any, filter(None, given_up[1:]))):
            notes.append(f"--log-dir {os.devnull}: nothing is kept in files, and all is shown")
    module, no_python = fields.pop("m", False), fields.pop("no_python", False)
    if module and no_python:
        raise errors.FlagsError("-m and --no-python exclude each other; leave one out")
    kind = "module" if module else "program" if no_python else "script"
    request = flags.Request(
        program=_program(words, kind, is_bare=len(words) == len(argv)),
        python=environ.get("PYTHON_EXEC") or python,
        flags=tuple(
            flag.name if text is None else f"{flag.name}={text}"
            for flag, text, _ in given
            if flag.field in flags.Request._fields
        ),
        sources={
            flag.name: typed
            for flag, _, typed in given
            if typed != flag.name and (flag.also or typed in environ)
        },
        notes=(*notes, *extra.pop("notes", ())),
        **fields,
        **extra,
    )
    _check_together(request)
    return request


def _cut(argv: Sequence[str]) -> tuple[list[flags.Given], Sequence[str]]:
    """Split argv where the worker's command begins.

    Left: our flags, each with its text, None where it has none. Right: the worker's command; after
    "--" it may begin with a hyphen, and is then the flags of the bundled loop.
    """
    given: list[flags.Given] = []
    at = 0
    while at < len(argv) and argv[at].startswith("-") and argv[at] != "-":
        word = argv[at]
        at += 1
        if word == "--":
            break
        typed, equals, text = word.partition("=")
        flag = flags.spelt(typed)
        if flag is None:
            from spawnlaunch.torchrun import names  # most users type names of ours

            typed, equals, text = names.split(word)
            flag = names.flag(typed)
        if flag is None:
            from spawnlaunch.torchrun import strange_flags  # slow to import, and only needed here

            raise errors.FlagsError(strange_flags.advice(word))
        if equals and not flag.read:
            alone = f"{flag.name} {text}" if flag.name == "-m" else flag.name
            raise errors.FlagsError(f"{word}: {flag.name} takes no value; type {alone}")
        if not equals and flag.alone is None:
            if at == len(argv):
                raise errors.FlagsError(f"{typed} needs a value; {flags.HERE} --help shows which")
            equals, text = "=", argv[at]
            at += 1
        if equals and text == "--":
            raise errors.FlagsError(
                f"{typed} needs a value, and -- is none; {flags.HERE} --help shows which"
            )
        given.append((flag, text if equals else None, typed))
    return given, argv[at:]


def _value(flag: flags.Flag, text: str | None, typed: str) -> Any:
    """The value of a flag; `typed` is its spelling, or the variable it is from.

    Raises UsageError, or Page.
    """
    read = flag.read
    if text is None:
        found = flag.alone
    elif callable(read):
        try:
            found = read(text)
        except ValueError as error:
            raise errors.UsageError(f"{typed}: {error}") from None
    elif text in read:
        found = read[text]
    else:
        words = ", ".join(map(repr, read))
        raise errors.UsageError(
            f"{typed}: invalid choice: {reading.excerpt(text)}; type one of {words}"
        )
    if flag.name in ("--help", "--version", "--completion"):
        from spawnlaunch import manual

        raise flags.Page(manual.asked(flag.name, found))
    return found


def warnings(request: flags.Request, several_nodes: bool) -> list[str]:
    """Lines about flags that do less than their user may expect."""
    found = [*request.notes]
    if request.program == ("bundled", "", ()):
        found.append(
            "no script is named, so the bundled training loop runs and writes to runs/; for a "
            f"script of yours type its path behind the flags, as in {flags.HERE} --nproc 2 train.py"
        )
    if request.program.kind == "script" and (word := request.program.target) in flags.PROGRAMS:
        found.append(f"the file {word} here is run; for ours type python -m spawnlaunch.{word}")
    if request.rdzv_conf:
        from spawnlaunch.torchrun import readers

        found += readers.strange(request.rdzv_conf)
    if any(request.tee or ()) and request.log_dir is None:
        found.append("--tee without --log-dir DIR: all is shown, and nothing is kept in files")
    if request.on_hang == flags.KILL and not request.hang_timeout_s:
        found.append("--on-hang kill without --hang-timeout SECONDS: nobody looks for a hang")
    for flag in ("--restart-window", "--no-restart-status"):
        if flag in request.need_parent and not request.max_restarts:
            found.append(f"{flag} without --max-restarts N: nothing is started anew")
    if request.hang_timeout_s and several_nodes and request.no_gang:
        found.append(
            "--hang-timeout: each node listens to its own ranks only, so those that never write "
            "anything seem to hang"
        )
    return found


def _check_together(request: flags.Request) -> None:
    """Raise UsageError for flags that exclude each other, or need what is not there."""
    if request.preload and request.program.kind == "program":
        raise errors.FlagsError(
            "--preload is for Python, and --no-python is not; leave one of them out"
        )
    if request.preload and request.python != sys.executable:
        raise errors.UsageError(
            f"--preload forks {sys.executable}, and PYTHON_EXEC asks for {request.python}; "
            "leave one of them out"
        )
    if request.program.kind == "bundled" and request.local_rank_arg:
        raise errors.FlagsError(
            "no script is named, and --local-rank-arg (distributed_launch sets it) is for one; the "
            "bundled training loop reads LOCAL_RANK; name a script, or for the loop type "
            f"{flags.HERE} --nproc 2"
        )
    of_ours = request.program.kind == "bundled" or request.program.target == "spawnlaunch.check"
    if of_ours and not request.explain:
        from spawnlaunch import programs

        programs.need_torch(request.program, request.python)
    if (request.sysfs_root != "/" or request.allowed_cpus is not None) and not request.explain:
        raise errors.FlagsError(
            "--sysfs-root and --allowed-cpus need --explain; type --explain as well"
        )
    if not os.path.isdir(request.sysfs_root):
        raise errors.UsageError(
            f"--sysfs-root {request.sysfs_root!r} is no directory; type one that has sys and proc"
        )


def _program(words: Sequence[str], kind: str, is_bare: bool) -> flags.Program:
    """What the workers run.

    Raises UsageError, and Instead for a program that starts no workers, or starts its own.
    """
    if not words or (words[0].startswith("-") and words[0] != "-"):
        if kind == "module":
            raise errors.FlagsError(f"-m needs a module; type {flags.HERE} -m package.module")
        if kind == "program":
            raise errors.FlagsError(
                f"--no-python needs a program; type {flags.HERE} --no-python ./program"
            )
        reading.absolute("runs", "the bundled training loop writes to")
        return flags.Program("bundled", "", tuple(words))
    target, args = words[0], tuple(words[1:])
    if not target:
        raise errors.UsageError(
            "the script is an empty word, as an unset variable gives; type its path, or "
            f"leave it out for the bundled training loop: {flags.HERE}"
        )
    if kind == "program":
        _check_program(target)
    if kind != "script":
        return flags.Program(kind, target, args)
    if target in flags.PROGRAMS:
        from spawnlaunch import programs

        return programs.named(target, args, is_bare)
    if target != "-" and not os.path.exists(target):
        raise errors.UsageError(
            f"script {target!r} not found: there is no {reading.absolute(target, 'script')}; "
            f"check the path, or type -m {target} for a module, --no-python {target} for a program"
        )
    return flags.Program("script", target, args)


def _check_program(target: str) -> None:
    """Refuse a program that execvp would not find: on PATH, unless its name has a slash."""
    places = [""] if os.sep in target else os.get_exec_path()
    if not any(os.access(os.path.join(place, target), os.X_OK) for place in places):
        if os.sep in target:
            raise errors.UsageError(
                f"program {target!r} is not an executable file; type chmod +x where it is one, or "
                "leave --no-python out for a script of Python's"
            )
        raise errors.UsageError(
            f"program {target!r} is not on PATH; type its path, as in {flags.HERE} --no-python "
            "./program"
        )
