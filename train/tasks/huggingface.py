"""Models and tokenizers of Hugging Face transformers, from this machine only.

And the common part of the tasks that train them: flags, defaults, and how they are saved.
"""

from __future__ import annotations

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

from ..config import flag, switch, word
from ..errors import shared_refusal
from ..model import named
from ..task import Task, split_of
from . import rows

# Every rank would print its own; the loop prints what matters.
transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]

WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
TOKENIZER_FILES = (".json", ".txt", ".model")
# Taken by every configuration, which keeps them under other names.
TAKEN = ("attn_implementation", "torch_dtype", "rope_theta", "rope_scaling")
WHY = 300  # characters of an error that are shown


def tokenizer_of(model: str, tokenizer: str | None, needed: Sequence[str]) -> Any:
    """The tokenizer in a directory; without one, bytes are the tokens.

    Raises RefusedError where it lacks a special token that is ``needed``, of "eos" and "pad".
    """
    place = tokenizer or model
    if tokenizer is None and not list(Path(model).glob("tokenizer*")):
        return ByT5Tokenizer(extra_ids=0)
    if not Path(place).is_dir():
        raise shared_refusal(f"--tokenizer: there is no directory {place}")
    with _refused_as(f"--tokenizer: {place}"):
        loaded = AutoTokenizer.from_pretrained(place, local_files_only=True)
    if loaded.pad_token_id is None and loaded.eos_token_id is not None:
        loaded.pad_token = loaded.eos_token
    for name in needed:
        if getattr(loaded, f"{name}_token_id") is None:
            raise shared_refusal(
                f"--tokenizer: the tokenizer in {place} has no {name}_token, which this task "
                f'needs; name one as "{name}_token" in its tokenizer_config.json'
            )
    return loaded


def config_of(model: str, changes: str, by_type: dict[str, Any], **more: Any) -> Any:
    """The configuration in a directory, or of a type such as "gpt2", with changes as JSON.

    The fields in ``by_type`` are for a type alone; a directory has its own.
    """
    with _refused_as(f"--model-config: {changes}"):
        wanted = dict(json.loads(changes))
    # Only a directory with a config.json counts: "gpt2" may be that of a run, by --out.
    if (Path(model) / "config.json").exists():
        make = partial(AutoConfig.from_pretrained, model, local_files_only=True)
    elif model in CONFIG_MAPPING:
        make = partial(AutoConfig.for_model, model)
        more = {**by_type, **more}
    else:
        name = Path(model).name
        raise shared_refusal(
            f"--model-name: {model} is neither a local directory with a config.json nor a type "
            "such as gpt2; a model of the Hugging Face hub has to be downloaded first: "
            f"run hf download {model} --local-dir {name}, then --model-name {name}"
        )
    with _refused_as(f"--model-name: {model}"):
        usual = make(**more)
    known = {*vars(usual), *usual.to_dict(), *usual.attribute_map, *TAKEN}
    if unknown := sorted(set(wanted) - known):  # which transformers would keep, and not use
        raise shared_refusal(
            f"--model-config: the configuration of {model} has no {', '.join(unknown)}; it has "
            f"{', '.join(key for key, value in usual.to_dict().items() if type(value) is int)}"
        )
    with _refused_as(f"--model-config: {changes}"):
        return make(**{**more, **wanted})


@contextmanager
def _refused_as(place: str) -> Iterator[None]:
    """Turn an error of transformers, of any class, into a RefusedError of one line."""
    try:
        yield
    except Exception as error:
        why = textwrap.shorten(str(error) or type(error).__name__, WHY, placeholder=" ...")
        raise shared_refusal(f"{place}: {why}") from error


def has_weights(model: str) -> bool:
    """Whether the directory has weights; without them the model begins with random ones."""
    return any(next(Path(model).glob(pattern), None) for pattern in WEIGHTS)


def names_in(config: Any) -> list[list[str]]:
    """The classes of a configuration in the order of their numbers, by label2id and by id2label."""
    by_label = {number: name for name, number in (config.label2id or {}).items()}
    tables = ({int(n): name for n, name in table.items()} for table in (by_label, config.id2label))
    return [
        [str(table[number]) for number in range(len(table))]
        for table in tables
        if sorted(table) == list(range(config.num_labels))
    ]


def in_order_of(saved: list[str], names: list[str]) -> list[str] | None:
    """The names ``ours`` in the order of ``theirs``, if both are the same, case aside; else None.

    LABEL_0, which transformers writes for a class without a name, is the class 0.
    """
    unnamed = [f"label_{number}" for number in range(len(names))]
    by_text = {name.casefold(): name for name in names}
    texts = [name.casefold() for name in saved]
    if texts == unnamed and set(names) == set(map(str, range(len(names)))):
        return sorted(names, key=int)
    same = len(by_text) == len(names) and sorted(texts) == sorted(by_text)
    return [by_text[text] for text in texts] if same else None


@dataclass
class FineTuning(Task):
    """A model from this machine, and local data to train it on."""

    data: str = field(
        metadata={"type": word, "metavar": "FILE", "help": "rows, a saved data set, or images"}
    )
    model_name: str = flag("gpt2", word, "MODEL", "local directory, or a type (%(default)s)")
    model_config: str = flag("{}", word, "JSON", "changes of the model's configuration")
    validation: str | None = flag(None, word, "FILE", "held-out data (every tenth sample)")
    test: str | None = flag(None, word, "FILE", "data for --eval-splits test")
    checkpoint_activations: bool = switch("compute each block again in the backward pass")

    defaults: ClassVar = {"lr": 5e-5, "weight_decay": 0.01}

    #: the name of an Auto class
    _kind: ClassVar[str]

    def __post_init__(self) -> None:
        self.splits: dict[str, Any] = {}
        self.facts: dict[str, Any] = {}  # of what was prepared
        self.labels: list[str] = []
        self.head = ""  # what is said of a last layer for other classes
        self.configure()

    def configure(self, **more: Any) -> None:
        """Make the configuration."""
        self.config = config_of(self.model_name, self.model_config, self.by_type(), **more)

    def by_type(self) -> dict[str, Any]:
        """Further fields for the configuration of a type, which no directory has."""
        return {}

    def name_classes(self, names: list[str]) -> list[int]:
        """Name the classes that the model tells apart; returns the number of each of ``names``.

        The numbers are those of the model's directory where it has the same names.
        """
        every = names_in(self.config)
        ordered = next(filter(None, (in_order_of(saved, names) for saved in every)), None)
        self.labels = ordered or names
        saved = every[-1] if every else []
        if ordered is None and has_weights(self.model_name):
            shown = [
                textwrap.shorten(", ".join(of), WHY, placeholder=" ...") for of in (saved, names)
            ]
            self.head = f", whose classes {shown[0]} are taken for {shown[1]}, in this order"
            if len(saved) != len(names):
                self.head = f" (for {shown[0]}) with a new last layer for {shown[1]}"
        numbers = {name: number for number, name in enumerate(self.labels)}
        by_number = dict(enumerate(self.labels))
        self.configure(num_labels=len(names), id2label=by_number, label2id=numbers)
        return [numbers[name] for name in names]

    def describe(self) -> str:
        """The amount in each split, and the origin of the data."""
        # Without "test": a run that is resumed to be tested may have had no such split.
        train, validation = self.amount("train"), self.amount("validation")
        amounts = f"{train} to train on, {validation} held out ({self.facts['held_out']})"
        if self.labels:
            amounts += f", {len(self.labels)} classes"
        if broken := self.facts.get("broken_lines"):
            amounts += f", {broken:,} rows have a line break inside quotes"
        return f"{self.data}, sha256 {self.facts['digest']}: {amounts}"

    def amount(self, split: str) -> str:
        """The amount in a split, as "1,000 tokens"."""
        raise NotImplementedError

    def model(self) -> Any:
        """Make the model, with the directory's weights or random ones, in float32 in any case."""
        auto = getattr(transformers, self._kind)
        if not has_weights(self.model_name):
            self.origin = f"random weights, of the type {self.model_name}"
            self.config.dtype = torch.float32
            with _refused_as(f"--model-config: {self.model_config}"):
                return self.prepared_model(auto.from_config(self.config))
        with _refused_as(f"--model-name: {self.model_name}"):
            loaded, report = auto.from_pretrained(
                self.model_name,
                config=self.config,
                local_files_only=True,
                ignore_mismatched_sizes=bool(self.head),
                output_loading_info=True,
            )
        new = sorted({*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])})
        self.pretrained = not new and not self.head
        self.origin = f"weights of {self.model_name}{self.head}"
        if new:
            self.origin += f", and new ones for {named(new)}"
        return self.prepared_model(loaded)

    def prepared_model(self, model: Any) -> Any:
        """Return the model in float32, also where the directory has another type."""
        if self.checkpoint_activations:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        return model.float()

    def dataset(self, split: str) -> Any:
        """Return the samples of a split. Raises RefusedError when there is no such split."""
        return split_of(self.splits, split)

    def export(self, model: Any, directory: Path) -> None:
        """Write the model in the form that from_pretrained reads."""
        model.save_pretrained(directory / "model")


@dataclass
class OnText(FineTuning):
    """A model, a tokenizer, and rows with texts."""

    tokenizer: str | None = flag(None, word, "DIR", "local directory (the model's; else bytes)")

    #: special tokens without which nothing can be trained
    _tokens_needed: ClassVar[Sequence[str]]

    def __post_init__(self) -> None:
        self.tokens = tokenizer_of(self.model_name, self.tokenizer, self._tokens_needed)
        super().__post_init__()

    def configure(self, **more: Any) -> None:
        names = ("pad_token_id", "bos_token_id", "eos_token_id")
        tokens = {name: getattr(self.tokens, name) for name in names}
        super().configure(**tokens, use_cache=False, **more)

    def by_type(self) -> dict[str, Any]:
        return {"vocab_size": len(self.tokens)}

    def prepare(self, directory: Path) -> None:
        """Make tokens of the rows, unless the run that is resumed has done so."""
        files = (self.data, self.validation, self.test)
        place = Path(self.tokenizer or self.model_name)
        tokenizer = [file for file in place.glob("*") if file.suffix in TOKENIZER_FILES]
        source = {**asdict(self), "files": rows.fingerprint(*files, *tokenizer)}
        if not rows.is_prepared(directory, source):
            splits, held_out = rows.read_splits(*files)
            rows.begin_preparing(directory)
            facts = self.write(directory, splits)
            facts["held_out"] = held_out
            facts["broken_lines"] = sum(splits[split].broken_lines for split in rows.USED)
            facts["splits"] = list(splits)
            rows.finish_preparing(directory, source, facts, Path(self.data).parent)

    def write(self, directory: Path, splits: Mapping[str, rows.Rows]) -> dict[str, Any]:
        """Write the arrays of each split; returns facts for ``take_up``."""
        raise NotImplementedError

    def prepared(self, directory: Path) -> None:
        """Load the arrays that ``prepare`` wrote."""
        self.facts = rows.read_facts(directory)
        self.take_up(self.facts)
        for split in self.facts["splits"]:
            self.splits[split] = self.read(directory, split)

    def take_up(self, facts: dict[str, Any]) -> None:
        """Use the facts that ``write`` returned."""

    def read(self, directory: Path, split: str) -> Any:
        """The samples of a split."""
        raise NotImplementedError

    def model(self) -> Any:
        most, length = getattr(self.config, "max_position_embeddings", None), vars(self)["length"]
        if most is not None and length > most:
            raise shared_refusal(
                f"--length is {length}, and {self.model_name} takes {most} tokens at most; "
                f"use --length {most}"
            )
        loaded = super().model()
        if len(self.tokens) > loaded.get_input_embeddings().num_embeddings:
            loaded.resize_token_embeddings(len(self.tokens))
        return loaded

    def export(self, model: Any, directory: Path) -> None:
        super().export(model, directory)
        self.tokens.save_pretrained(directory / "model")
