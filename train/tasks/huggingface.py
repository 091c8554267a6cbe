"""Models and tokenizers of Hugging Face transformers, from this machine only.

And what the tasks that train them have in common: flags, defaults, and how they are saved.
"""

from __future__ import annotations

import copy
import difflib
import inspect
import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
import transformers
from transformers import CONFIG_MAPPING, AutoConfig, AutoTokenizer, ByT5Tokenizer

from ..config import flag, path, word
from ..errors import shared_refusal
from ..task import Task, split_of
from . import rows

# Every rank would print its own; what matters is said by the loop.
transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]

WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
LARGE = 500_000_000  # parameters; a rank needs 16 bytes for each while it trains
# Taken by every configuration, which keeps them under other names.
TAKEN = ("attn_implementation", "torch_dtype", "rope_theta", "rope_scaling")
LIKE = 0.7  # from 0 to 1: a name so like a type's was meant for it
WHY = 300  # characters of an error that are shown


def tokenizer_of(model: str, tokenizer: str | None) -> Any:
    """The tokenizer in a directory; without one, bytes are the tokens."""
    place = tokenizer or model
    if tokenizer is None and not list(Path(model).glob("tokenizer*")):
        return ByT5Tokenizer(extra_ids=0)
    if not Path(place).is_dir():
        raise shared_refusal(f"--tokenizer: there is no directory {place}")
    loaded = AutoTokenizer.from_pretrained(place, local_files_only=True)
    if loaded.pad_token_id is None:
        loaded.pad_token = loaded.eos_token
    return loaded


def of_tokens(tokenizer: Any) -> dict[str, Any]:
    """What a configuration has to say of the tokens."""
    return {
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "use_cache": False,
    }


def config_of(model: str, changes: str, by_type: dict[str, Any], **more: Any) -> Any:
    """The configuration in a directory, or of a type such as "gpt2", with changes as JSON.

    What is ``by_type`` is said of a type alone; a directory knows it.
    """
    wanted = _read_changes(changes)
    # A directory of another kind, as of a run in --out gpt2, is not meant.
    if (Path(model) / "config.json").exists():
        make = partial(AutoConfig.from_pretrained, model, local_files_only=True)
    elif model in CONFIG_MAPPING:
        make = partial(AutoConfig.for_model, model)
        more = {**by_type, **more}
    else:
        raise shared_refusal(_no_model(model))
    with _refused_as(f"--model-name: {model}"):
        usual = make(**more)
    _refuse_unknown(model, usual, wanted)
    with _refused_as(f"--model-config: {changes}"):
        return make(**{**more, **wanted})


def _read_changes(changes: str) -> dict[str, Any]:
    try:
        wanted = json.loads(changes)
    except ValueError as error:
        raise shared_refusal(f"--model-config: {changes} is no JSON: {error}") from error
    if not isinstance(wanted, dict):
        raise shared_refusal(
            f"--model-config: {changes} is no JSON object; type one such as '{{\"n_layer\": 2}}'",
        )
    return wanted


def _no_model(model: str) -> str:
    """Why there is none of this name, and what to type."""
    name = Path(model).name
    near = difflib.get_close_matches(model.lower().replace("-", "_"), CONFIG_MAPPING, 1, LIKE)
    meant = f"; did you mean the type {near[0]}?" if near else "; type one of these."
    return (
        f"--model-name: {model} is neither a local directory with a config.json nor a type such as "
        f"gpt2{meant} A model of the Hugging Face hub has to be downloaded first, where there is a "
        f"network: type hf download {model} --local-dir {name}, then --model-name {name}"
    )


def _refuse_unknown(model: str, usual: Any, wanted: dict[str, Any]) -> None:
    """Raises RefusedError for changes that the model's configuration would not look at."""
    known = {*vars(usual), *usual.to_dict(), *usual.attribute_map, *TAKEN}
    for cls in type(usual).__mro__:
        known |= set(inspect.signature(cls.__init__).parameters)  # type: ignore[misc]
        known |= {name for name, value in vars(cls).items() if isinstance(value, property)}
    known = {key for key in known if not key.startswith("_")} - {"self", "args", "kwargs"}
    unknown = []
    for key in sorted(set(wanted) - known):
        near = difflib.get_close_matches(key, sorted(known), 3)
        unknown.append(f"{key!r}" + (f" (did you mean {' or '.join(near)}?)" if near else ""))
    if unknown:
        raise shared_refusal(
            f"--model-config: the configuration of {model} has no {', no '.join(unknown)}; its "
            f"keys for the model's size are {', '.join(sizes_of(usual))}",
        )


def sizes_of(config: Any) -> dict[str, Any]:
    """The changes that make a model of this type small, under the names that the type has."""
    small = {
        "num_hidden_layers": 2,
        "hidden_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "intermediate_size": 512,
    }
    names = {name: config.attribute_map.get(name, name) for name in small}
    sizes: dict[str, Any] = {
        names[name]: value
        for name, value in small.items()
        if getattr(config, names[name], None) is not None
    }
    if hasattr(config, "attention_types"):  # of gpt_neo: one for each layer
        sizes["attention_types"] = [[["global"], 2]]
    return sizes


@contextmanager
def _refused_as(what: str) -> Iterator[None]:
    """An error of transformers as one line; its classes raise many kinds, some of their own."""
    try:
        yield
    except Exception as error:
        why = textwrap.shorten(str(error) or type(error).__name__, WHY, placeholder=" ...")
        raise shared_refusal(f"{what}: {why}") from error


def count_parameters(kind: str, config: Any, what: str) -> int:
    """How many parameters a model will have; of most, no memory is taken for them.

    ``kind`` is the name of an Auto class. Raises RefusedError, which begins with ``what``, when no
    model can be made from the configuration.
    """
    make = partial(getattr(transformers, kind).from_config, copy.deepcopy(config))
    try:
        with torch.device("meta"):
            model = make()
    except Exception:  # also of a model that computes with values while it is made
        with _refused_as(what):
            model = make()
    return sum(int(p.numel()) for p in model.parameters())


def model_of(kind: str, model: str, config: Any, tokenizer: Any, length: int) -> Any:
    """The weights in a directory, or random ones; ``kind`` is the name of an Auto class.

    Raises RefusedError when it takes fewer tokens at once than ``length``.
    """
    most = getattr(config, "max_position_embeddings", None)
    if most is not None and length > most:
        raise shared_refusal(
            f"--length is {length}, and {model} takes {most} tokens at most; type --length {most}",
        )
    auto = getattr(transformers, kind)
    if has_weights(model):
        loaded = auto.from_pretrained(model, config=config, local_files_only=True)
    else:
        loaded = auto.from_config(config)
    if len(tokenizer) > loaded.get_input_embeddings().num_embeddings:
        loaded.resize_token_embeddings(len(tokenizer))
    return loaded


def has_weights(model: str) -> bool:
    """Whether there are any in the directory; without them the model begins with random ones."""
    return any(next(Path(model).glob(pattern), None) for pattern in WEIGHTS)


def origin_of(model: str, config: Any, parameters: int) -> str:
    """Where the weights come from, for a line on the run."""
    if has_weights(model):
        return f"weights of {model}"
    said = f"random weights, of the type {model}, {parameters:,} parameters"
    if parameters > LARGE:
        said += f"; for a smaller model type --model-config '{json.dumps(sizes_of(config))}'"
    return said


def flops_per_token(model: Any) -> float:
    """Of a forward and a backward pass, attention aside (Kaplan et al., arXiv:2001.08361)."""
    return 6.0 * sum(int(p.numel()) for p in model.parameters())


@dataclass
class FineTuning(Task):
    """A model and a tokenizer from this machine, and local rows to train on."""

    data: str = field(
        metadata={"type": path, "metavar": "FILE", "help": ".jsonl, .csv, .txt or saved data set"}
    )
    model_name: str = flag("gpt2", word, "MODEL", "local directory, or a type (%(default)s)")
    model_config: str = flag("{}", word, "JSON", "changes of the model's configuration")
    tokenizer: str | None = flag(None, path, "DIR", "local directory (the model's; else bytes)")
    validation: str | None = flag(None, path, "FILE", "held-out data (every tenth text)")
    test: str | None = flag(None, path, "FILE", "data for --eval-splits test")

    defaults: ClassVar = {"lr": 5e-5, "weight_decay": 0.01}

    #: the name of an Auto class
    _kind: ClassVar[str]

    def __post_init__(self) -> None:
        self.splits: dict[str, Any] = {}
        self.pretrained = has_weights(self.model_name)
        self.tokens = tokenizer_of(self.model_name, self.tokenizer)
        self.configure()

    def configure(self, **more: Any) -> None:
        """Make the configuration, and see that a model can be made from it."""
        more = {**of_tokens(self.tokens), **more}
        by_type = {"vocab_size": len(self.tokens), **self._by_type()}
        self.config = config_of(self.model_name, self.model_config, by_type, **more)
        flag = "name" if self.model_config == "{}" else "config"
        asked = self.model_name if flag == "name" else self.model_config
        self.parameters = count_parameters(self._kind, self.config, f"--model-{flag}: {asked}")

    def _by_type(self) -> dict[str, Any]:
        """What the configuration of a type has to say beside, where no directory says it."""
        return {}

    def prepare(self, directory: Path) -> None:
        """Make tokens of the rows, unless a run that now goes on has done so."""
        files = (self.data, self.validation, self.test)
        held_out = rows.origin_of_held_out(self.data, self.validation)
        source = rows.source_of({**asdict(self), "held_out": held_out}, *files)
        if not rows.is_prepared(directory, source):
            rows.begin_preparing(directory)
            self.write(directory, rows.read_splits(*files))
            rows.finish_preparing(directory, source)

    def write(self, directory: Path, splits: Mapping[str, Sequence[rows.Row]]) -> None:
        """Write the arrays of each split; a task does it in its own way."""
        raise NotImplementedError

    def prepared(self, directory: Path) -> None:
        """Take up the arrays; a task extends it."""
        self.held_out = rows.read_held_out(directory)

    def describe(self) -> str:
        """How much there is in each split, and where the rows and the weights come from."""
        origin = origin_of(self.model_name, self.config, self.parameters)
        return f"{self.data}: {self._counts()}; {origin}"

    def _counts(self) -> str:
        # None of "test": a run that is resumed to be tested may have none so far.
        train, validation = self._size("train"), self._size("validation")
        return f"{train} to train on, {validation} held out ({self.held_out})"

    def _size(self, split: str) -> str:
        """How much there is in a split, as "1,000 tokens"."""
        raise NotImplementedError

    def dataset(self, split: str) -> Any:
        """The samples of this split. Raises RefusedError when there is none."""
        if split == "test" and split not in self.splits:
            used = self.held_out == rows.SPLIT_TEST
            raise shared_refusal(
                "--eval-splits: there is no split 'test'"
                + (f", as that of {self.data} is held out to validate with" if used else "")
                + f"; type --test FILE{' or --validation FILE' if used else ''}",
            )
        return split_of(self.splits, split)

    def export(self, model: Any, directory: Path) -> None:
        """In the form that from_pretrained reads."""
        model.save_pretrained(directory / "model")
        self.tokens.save_pretrained(directory / "model")
