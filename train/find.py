"""Find the class of the task that ``--task`` names."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import sysconfig
from types import ModuleType
from typing import NoReturn

from .errors import refuse, shared_refusal

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


def task_class(name: str) -> type:
    """The class that a bundled name, ``path/to/file.py:Class`` or ``package.module:Class`` means.

    Exits with status 2 when there is none, and raises RefusedError when it lacks a hook. An error
    inside the module is raised as it is: its author wants the traceback.
    """
    place, _, attribute = BUNDLED.get(name, name).rpartition(":")
    if not place or not attribute:
        known, file = ", ".join(BUNDLED), name if name.endswith(".py") else "file.py"
        _refuse(f"there is no task {name!r}; type {known}, {file}:Class or package.module:Class")
    is_file = place.endswith(".py")
    if name not in BUNDLED and (not is_file or os.getcwd() in sys.path):  # as python -m has it
        _import_first_from(os.getcwd())
    module = _from_file(place) if is_file else _from_name(place)
    found = getattr(module, attribute, None)
    if not isinstance(found, type):
        classes = {n: each for n, each in vars(module).items() if isinstance(each, type)}
        own = [n for n, each in classes.items() if each.__module__ == module.__name__]
        _refuse(f"{place} has no class {attribute}; it has {', '.join(own) or 'none'}")
    from .task import complete  # which imports torch

    complete(found)
    return found


def _from_file(path: str) -> ModuleType:
    path = os.path.abspath(path)
    # A name that no import statement can produce, so that a user's train.py shadows nothing; and
    # without a dot, which would make pickle look for a package.
    name = f"task file {path}".replace(".", "_")
    if name in sys.modules:
        return sys.modules[name]
    if not os.path.isfile(path):
        _refuse(f"there is no file {path}; type the path of a Python file, and :Class")
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
            _refuse(f"there is no module {missing}; a file is typed as path/to/file.py:Class")
        if name.startswith(PACKAGE):
            what = missing if missing == "torch" else "'spawnlaunch[hf]'"
            _refuse(f"this task needs {missing}; type pip install {what}")
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


def _refuse(text: str) -> NoReturn:
    refuse(shared_refusal(f"--task: {text}"))
