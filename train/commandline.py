"""Turn a command line, and a file of flags, into a configuration and the class of its task."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
import sys
import sysconfig
import typing
from argparse import SUPPRESS, ArgumentError, BooleanOptionalAction
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any, NoReturn

from .config import FLAGS, Config, Parser, word
from .errors import refuse, shared_refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .task import Task


PACKAGE = "spawnlaunch.train.tasks."
BUNDLED = {
    "language": PACKAGE + "language:Language",
    "classify": PACKAGE + "classify:Classify",
    "causal_lm": PACKAGE + "causal_lm:CausalLM",
    "sequence_classification": PACKAGE + "sequence_classification:SequenceClassification",
}
# Tasks that need the extra.
WITH_HF = ("causal_lm", "sequence_classification")
SCALARS = (int, float, str, bool)
LENGTHS = {"--steps", "--epochs"}  # flags that set the length of a run
SIZES = {"--global-batch", "--global-tokens"}  # flags that set the size of a step


def parse(arguments: Sequence[str]) -> tuple[Config, type]:
    """Return the configuration that a command line asks for, and the class of its task.

    A flag of the command line wins over the file of --config, and this over the task's
    ``defaults``. Flags of the loop are checked before the task is loaded, which imports torch: a
    mistyped number is refused at once. A bad command line exits with status 2.
    """
    arguments = [re.sub("^--[^=]+", lambda f: _flag(f[0][2:]), word) for word in arguments]
    parser = _loop_parser()
    early, _ = parser.parse_known_args(arguments)
    from_file = _words(parser, early.config, _read(parser, early.config)) if early.config else []
    parser.origin = f"{early.config}: " if from_file else ""
    early, _ = parser.parse_known_args(_joined(from_file, arguments))
    cls = task_class(early.task)
    options = _add_task(parser, cls)
    if from_file:  # by itself, so that its errors name it
        parser.parse_args(from_file)
    defaults: Mapping[str, Any] = cls.defaults  # type: ignore[attr-defined]
    from_task = _words(parser, f"{cls.__name__}.defaults", defaults)
    parser.origin = f"{cls.__name__}.defaults: "
    parser.parse_args(from_task)
    # For --help; without the length, which another flag may set instead.
    parser.set_defaults(**{n: v for n, v in defaults.items() if _flag(n) not in LENGTHS})
    parser.origin = ""
    values = vars(parser.parse_args(_joined(from_task, from_file, arguments)))
    # Not left to argparse, which would require them of the file alone as well.
    needed = [_flag(n) for n, is_needed in options.items() if is_needed and values[n] is None]
    if needed:
        parser.error(f"the following arguments are required: {', '.join(needed)}")
    own = {name: values[name] for name in options}
    return Config(**{each.name: values[each.name] for each in FLAGS}, options=own), cls


def _joined(*sources: Sequence[str]) -> list[str]:
    """Join words of several sources; --steps and --epochs of the last that has them count."""
    lengths = [bool(LENGTHS.intersection(_names(words))) for words in sources]
    last = len(sources) - 1 - lengths[::-1].index(True) if any(lengths) else 0
    earlier = [w for words in sources[:last] for w in words if not LENGTHS & _names([w])]
    return [*earlier, *(word for words in sources[last:] for word in words)]


def _names(words: Sequence[str]) -> set[str]:
    """Return the flags among some words, without their values."""
    return {word.partition("=")[0] for word in words}


def _loop_parser() -> Parser:
    without_extra = ", ".join(name for name in BUNDLED if name not in WITH_HF)
    parser = Parser(
        prog="train",
        usage="spawnlaunch train [flags] [flags of the task]",
        description="Train a model with one process or with many: any launcher that sets RANK, "
        "WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT will do. Twice the workers at half "
        f"the batch size end at the same loss. Tasks: {without_extra}; with the hf extra "
        f"{', '.join(WITH_HF)}, or a class of yours.",
        epilog="A default is in parentheses, and _ may stand for -. The run is metrics.jsonl, one "
        "JSON object a line, and step-*, its checkpoints. Status 75: preempted, and saved.",
        allow_abbrev=False,
        add_help=False,
    )
    parser.add_argument(
        "--config", type=word, metavar="FILE", help="TOML file of flags and values; flags win"
    )
    length, size = (parser.add_mutually_exclusive_group() for _ in range(2))
    groups = dict.fromkeys(LENGTHS, length) | dict.fromkeys(SIZES, size)
    for each in FLAGS:
        place = groups.get(_flag(each.name), parser)
        place.add_argument(_flag(each.name), default=each.default, **each.metadata)
    return parser


def _add_task(parser: Parser, cls: type[Task]) -> dict[str, bool]:
    """Add the parameters of a task's constructor as flags; returns whether each must be given.

    A parameter's type is int, float, str or bool, or one of them or None; without an annotation,
    that of the default. A dataclass may say more about its fields with ``flag`` and ``switch``.
    """
    parser.add_argument("-h", "--help", action="help", default=SUPPRESS, help=SUPPRESS)
    group = parser.add_argument_group(f"flags of the task {cls.__name__}")
    described: dict[str, Any] = {}
    if is_dataclass(cls):
        described = {each.name: dict(each.metadata) for each in fields(cls)}
    hints = typing.get_type_hints(cls if is_dataclass(cls) else cls.__init__)
    options = {}
    for name, parameter in inspect.signature(cls).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        options[name] = parameter.default is parameter.empty
        default = None if options[name] else parameter.default
        hint = hints.get(name, type(default))
        keywords = described.get(name) or _by_type(cls, name, hint, default)
        try:
            group.add_argument(_flag(name), **keywords, default=default)
        except (ArgumentError, ValueError):  # --config; a switch that begins with no_
            parser.error(f"{cls.__name__} has an option {name}, and so has the loop; rename it")
    return options


def _by_type(cls: type, name: str, hint: Any, default: Any) -> dict[str, Any]:
    if typing.get_origin(hint) in (UnionType, typing.Union):
        types = [each for each in typing.get_args(hint) if each is not type(None)]
        hint = types[0] if len(types) == 1 else hint
    if hint is type(None):  # neither a type nor a default
        hint = str
    if hint not in SCALARS:
        _refuse_task(
            f"the parameter {name} of {cls.__name__} is of the type "
            f"{getattr(hint, '__name__', hint)}; make it int, float, str or bool"
        )
    if hint is bool:
        return {"action": BooleanOptionalAction, "help": "(%(default)s)"}
    return {
        "type": hint,
        "metavar": hint.__name__.upper(),
        "help": "" if default is None else "(%(default)s)",
    }


def _read(parser: Parser, file: str) -> dict[str, Any]:
    """The names and values in a TOML file."""
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        values: dict[str, Any] = toml.loads(Path(file).read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        parser.error(f"cannot read {file}: {error}")
    return values


def _words(parser: Parser, origin: str, values: Mapping[str, Any]) -> list[str]:
    """The arguments that names and values stand for: ``lr = 3e-4`` is ``--lr=0.0003``."""
    words = []
    for name, value in values.items():
        if name in ("config", "help"):
            parser.error(f"{origin}: {name} is for the command line alone")
        elif isinstance(value, bool):
            words.append(_flag(name if value else f"no_{name}"))
        elif isinstance(value, (int, float, str)):
            words.append(f"{_flag(name)}={value}")
        else:
            parser.error(f"{origin}: {name} is not a number, a text, true or false")
    return words


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def task_class(name: str) -> type:
    """The class that a bundled name, ``path/to/file.py:Class`` or ``package.module:Class`` means.

    Exits with status 2 when there is none, and raises RefusedError when it lacks a hook. An error
    inside the module is raised as it is: its author wants the traceback.
    """
    place, _, attribute = BUNDLED.get(name, name).rpartition(":")
    if not place or not attribute:
        known, file = ", ".join(BUNDLED), name if name.endswith(".py") else "file.py"
        _refuse_task(
            f"there is no task {name!r}; use {known}, {file}:Class or package.module:Class"
        )
    is_file = place.endswith(".py")
    if name not in BUNDLED and (not is_file or os.getcwd() in sys.path):  # as python -m has it
        _import_first_from(os.getcwd())
    module = _from_file(place) if is_file else _from_name(place)
    cls = getattr(module, attribute, None)
    if not isinstance(cls, type):
        classes = {n: each for n, each in vars(module).items() if isinstance(each, type)}
        names = [n for n, each in classes.items() if each.__module__ == module.__name__]
        _refuse_task(f"{place} has no class {attribute}; it has {', '.join(names) or 'none'}")
    from .task import complete  # which imports torch

    complete(cls)
    return cls


def _from_file(path: str) -> ModuleType:
    path = os.path.abspath(path)
    # A name that no import statement can produce, so that a user's train.py shadows nothing; and
    # without a dot, which would make pickle look for a package.
    name = f"task file {path}".replace(".", "_")
    if name in sys.modules:
        return sys.modules[name]
    if not os.path.isfile(path):
        _refuse_task(f"there is no file {path}; use the path of a Python file, and :Class")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    _import_first_from(os.path.dirname(path))
    spec.loader.exec_module(module)
    return module


def _from_name(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        if missing == name or name.startswith(missing + "."):
            _refuse_task(f"there is no module {missing}; a file is typed as path/to/file.py:Class")
        if name.startswith(PACKAGE):
            package = missing if missing == "torch" else "'spawnlaunch[hf]'"
            _refuse_task(f"this task needs {missing}; run pip install {package}")
        raise


def _import_first_from(directory: str) -> None:
    """Let a task import its own helpers before installed packages, as a script does.

    But after Python's own modules: a signal.py beside a task must not replace Python's.
    """
    stdlib = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
    stdlib |= {os.path.join(path, "lib-dynload") for path in stdlib}
    place = 1 + max((i for i, path in enumerate(sys.path) if path in stdlib), default=-1)
    if directory not in sys.path[:place]:
        sys.path[place:] = [directory, *(path for path in sys.path[place:] if path != directory)]


def _refuse_task(text: str) -> NoReturn:
    refuse(shared_refusal(f"--task: {text}"))


def build_task(config: Config, cls: type) -> Any:
    """Make the task; its constructor gets the options by name, and may raise RefusedError."""
    from . import rng  # which imports torch

    rng.seed_alike(config.seed)
    return cls(**config.options)
