"""Turn a command line, and a file of flags, into a configuration and the class of its task."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import sysconfig
import typing
from argparse import SUPPRESS, ArgumentError, BooleanOptionalAction, _ArgumentGroup
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any, NamedTuple, NoReturn

from .config import FLAGS, Config, Parser, path
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
    "image_classification": PACKAGE + "image_classification:ImageClassification",
    "seq2seq": PACKAGE + "seq2seq:Seq2Seq",
}
# Tasks that need the extra.
WITH_HF = ("causal_lm", "sequence_classification", "image_classification", "seq2seq")
SCALARS = (int, float, str, bool)
LENGTHS = {"--steps", "--epochs"}  # flags that set the length of a run


class Option(NamedTuple):
    """A flag that a task adds; ``how`` are keywords of argparse's add_argument."""

    name: str
    how: dict[str, Any]
    is_required: bool


def parse(arguments: Sequence[str]) -> tuple[Config, type]:
    """The configuration that a command line asks for, and its task's class.

    Flags of the loop are checked before the task is loaded, which imports torch: a mistyped number
    is refused at once. A bad command line exits with status 2.
    """
    arguments = [_dashed(word) for word in arguments]
    parser = _loop_parser()
    asked, _ = parser.parse_known_args(arguments)
    filed = _words(parser, asked.config, _read(parser, asked.config)) if asked.config else []
    parser.origin = f"{asked.config}: " if filed else ""
    asked, _ = parser.parse_known_args([*filed, *arguments])
    if asked.eval_only:  # with the flags of a run, but not what that run began with
        began = {"--overwrite"} | ({"--resume"} if "--init" in _names(arguments) else set())
        filed = [word for word in filed if not _names([word]) & began]
    elif asked.resume == "auto":  # a run goes on with its own flags, however it began
        filed = [word for word in filed if not _names([word]) & {"--overwrite"}]
    cls = task_class(asked.task)
    options = task_options(cls)
    _add_task(parser, cls, options)
    if filed:
        parser.parse_args(filed)
    defaults: Mapping[str, Any] = cls.defaults  # type: ignore[attr-defined]
    by_task = _words(parser, f"{cls.__name__}.defaults", defaults)
    parser.origin = f"{cls.__name__}.defaults: "
    parser.parse_args(by_task)
    parser.set_defaults(**defaults)  # for --help
    parser.origin = ""
    values = vars(parser.parse_args([*by_task, *filed, *arguments]))
    every = {"": arguments, f"{asked.config}: ": filed, f"{cls.__name__}.defaults: ": by_task}
    lengths = {origin: _names(words) & LENGTHS for origin, words in every.items()}
    for parser.origin, names in lengths.items():
        if names == LENGTHS:
            parser.error("--steps and --epochs both say how long the run is; leave one of them out")
    if next(filter(None, lengths.values()), set()) == {"--steps"}:
        values["epochs"] = None
    parser.origin = ""
    # Not left to argparse, which would require them of the file alone as well.
    missing = [_flag(one.name) for one in options if one.is_required and values[one.name] is None]
    if missing:
        parser.error(f"the following arguments are required: {', '.join(missing)}")
    own = {option.name: values[option.name] for option in options}
    return Config(**{one.name: values[one.name] for one in FLAGS}, options=own), cls


def _names(words: Sequence[str]) -> set[str]:
    """The flags among some words, without their values."""
    return {word.partition("=")[0] for word in words}


def _loop_parser() -> Parser:
    alone = ", ".join(name for name in BUNDLED if name not in WITH_HF)
    parser = Parser(
        prog="train",
        usage="python -m spawnlaunch.train [flags] [flags of the task]",
        description="Train a model with one process or with many: any launcher that sets RANK, "
        "WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT will do. Twice the workers at half "
        f"the batch size end at the same loss. Tasks: {alone}; with the hf extra "
        f"{', '.join(WITH_HF)}, or a class of yours.",
        epilog="A default is in parentheses, and _ may stand for -. The run is metrics.jsonl, one "
        "JSON object a line, and step-*, its checkpoints. Status 75: preempted, and saved.",
        allow_abbrev=False,
        add_help=False,
    )
    parser.add_argument(
        "--config", type=path, metavar="FILE", help="TOML file of flags and values; flags win"
    )
    for one in FLAGS:
        parser.add_argument(_flag(one.name), default=one.default, **one.metadata)
    return parser


def _add_task(parser: Parser, cls: type[Task], options: list[Option]) -> None:
    """Add the task's own flags to the parser."""
    parser.add_argument("-h", "--help", action="help", default=SUPPRESS, help=SUPPRESS)
    group: _ArgumentGroup = parser.add_argument_group(f"flags of the task {cls.__name__}")
    for option in options:
        if option.name.startswith("no_") and option.how.get("action") is BooleanOptionalAction:
            parser.error(
                f"{cls.__name__} has an option {option.name}, and {_flag(option.name)} would take "
                f"back one without no_; rename it"
            )
        try:
            group.add_argument(_flag(option.name), **option.how)
        except ArgumentError:  # --help, --config and the --no-compile of --compile among them
            parser.error(
                f"{cls.__name__} has an option {option.name}, and so has the loop; rename it"
            )


def task_options(cls: type) -> list[Option]:
    """Return the parameters of a task's constructor, as flags.

    A parameter's type is int, float, str or bool, or one of them or None; without an annotation,
    that of the default. A dataclass may say more about its fields with ``flag`` and ``switch``.
    """
    described = {one.name: dict(one.metadata) for one in fields(cls)} if is_dataclass(cls) else {}
    hints = typing.get_type_hints(cls if is_dataclass(cls) else cls.__init__)  # type: ignore[misc]
    options = []
    for name, parameter in inspect.signature(cls).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        is_required = parameter.default is parameter.empty
        default = None if is_required else parameter.default
        how = described.get(name) or _by_type(cls, name, hints.get(name, type(default)), default)
        options.append(Option(name, {**how, "default": default}, is_required))
    return options


def _by_type(cls: type, name: str, hint: Any, default: Any) -> dict[str, Any]:
    if typing.get_origin(hint) in (UnionType, typing.Union):
        others = [one for one in typing.get_args(hint) if one is not type(None)]
        hint = others[0] if len(others) == 1 else hint
    if hint is type(None):  # neither a type nor a default
        hint = str
    if hint not in SCALARS:
        shown = getattr(hint, "__name__", hint)
        refuse(
            shared_refusal(
                f"--task: the parameter {name} of {cls.__name__} is of the type {shown}, which no "
                "flag can be; make it int, float, str or bool",
            )
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


def _dashed(word: str) -> str:
    """A flag with dashes, however it was typed: --batch_size=8 is as good as --batch-size=8."""
    name, equals, value = word.partition("=")
    return _flag(name[2:]) + equals + value if name.startswith("--") else word


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
            f"there is no task {name!r}; type {known}, {file}:Class or package.module:Class"
        )
    is_file = place.endswith(".py")
    if name not in BUNDLED and (not is_file or os.getcwd() in sys.path):  # as python -m has it
        _import_first_from(os.getcwd())
    module = _from_file(place) if is_file else _from_name(place)
    cls = getattr(module, attribute, None)
    if not isinstance(cls, type):
        classes = {n: each for n, each in vars(module).items() if isinstance(each, type)}
        own = [n for n, each in classes.items() if each.__module__ == module.__name__]
        _refuse_task(f"{place} has no class {attribute}; it has {', '.join(own) or 'none'}")
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
        _refuse_task(f"there is no file {path}; type the path of a Python file, and :Class")
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
            what = missing if missing == "torch" else "'spawnlaunch[hf]'"
            _refuse_task(f"this task needs {missing}; run pip install {what}")
        raise


def _import_first_from(directory: str) -> None:
    """Let a task import its own helpers before installed packages, as a script does.

    But after Python's own modules: a signal.py beside a task must not replace Python's.
    """
    own = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
    own |= {os.path.join(one, "lib-dynload") for one in own}
    place = 1 + max((i for i, one in enumerate(sys.path) if one in own), default=-1)
    if directory not in sys.path[:place]:
        sys.path[place:] = [directory, *(one for one in sys.path[place:] if one != directory)]


def _refuse_task(text: str) -> NoReturn:
    refuse(shared_refusal(f"--task: {text}"))


def build_task(config: Config, cls: type) -> Any:
    """Make the task; its constructor gets the options by name, and may raise RefusedError."""
    from . import rng  # which imports torch

    rng.seed_alike(config.seed)
    try:
        return cls(**config.options)
    except (OSError, UnicodeError) as error:
        raise shared_refusal(f"{cls.__name__}: {error}") from error
