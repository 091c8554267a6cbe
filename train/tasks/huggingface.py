"""Models and tokenizers of Hugging Face transformers, from this machine only.

And what the tasks that train them have in common: flags, defaults, and how they are saved.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import transformers
from transformers import AutoConfig, AutoTokenizer, ByT5Tokenizer

from ..config import flag, path, word
from ..errors import RefusedError
from ..task import Task
from . import rows

# Every rank would print its own; what matters is said by the loop.
transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]

WEIGHTS = ("*.safetensors", "pytorch_model*.bin")


def tokenizer_of(model: str, tokenizer: str | None) -> Any:
    """The tokenizer in a directory; without one, bytes are the tokens."""
    place = tokenizer or model
    if tokenizer is None and not list(Path(model).glob("tokenizer*")):
        return ByT5Tokenizer(extra_ids=0)
    if not Path(place).is_dir():
        raise RefusedError(f"--tokenizer: there is no directory {place}", shared=True)
    loaded = AutoTokenizer.from_pretrained(place, local_files_only=True)
    if loaded.pad_token_id is None:
        loaded.pad_token = loaded.eos_token
    return loaded


def config_of(model: str, changes: str, tokenizer: Any, **more: Any) -> Any:
    """The configuration in a directory, or of a type such as "gpt2", with changes as JSON."""
    more |= {
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "use_cache": False,
    }
    try:
        wanted = {**more, **json.loads(changes)}
        # A directory of another kind, as of a run in --out gpt2, is not meant.
        if (Path(model) / "config.json").exists():
            return AutoConfig.from_pretrained(model, local_files_only=True, **wanted)
        return AutoConfig.for_model(model, **{"vocab_size": len(tokenizer), **wanted})
    except (ValueError, TypeError, OSError) as error:
        # Transformers would go on with the names of all types that it knows, which are hundreds.
        why = str(error).splitlines()[0].partition(" Should contain one of")[0].rstrip(".")
        raise RefusedError(
            f"--model-name: {model}{'' if changes == '{}' else f' with the changes {changes}'} "
            f"cannot be: {why}; type a local directory or a type such as gpt2; a model "
            "of the Hugging Face hub has to be downloaded first, where there is a network: type "
            f"hf download {model} --local-dir {Path(model).name}, then --model-name "
            f"{Path(model).name}",
            shared=True,
        ) from error


def model_of(kind: str, model: str, config: Any, tokenizer: Any, length: int) -> Any:
    """The weights in a directory, or random ones; ``kind`` is the name of an Auto class.

    Raises RefusedError when it takes fewer tokens at once than ``length``.
    """
    most = getattr(config, "max_position_embeddings", None)
    if most is not None and length > most:
        raise RefusedError(
            f"--length is {length}, and {model} takes {most} tokens at most; type --length {most}",
            shared=True,
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


def origin_of(model: str) -> str:
    """Where the weights come from, for a line on the run."""
    return f"weights of {model}" if has_weights(model) else f"random weights, of the type {model}"


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

    def __post_init__(self) -> None:
        self.tokens = tokenizer_of(self.model_name, self.tokenizer)

    def prepare(self, directory: Path) -> None:
        """Make tokens of the rows, unless a run that now goes on has done so."""
        source = rows.source_of(asdict(self), self.data, self.validation, self.test)
        if not rows.is_prepared(directory, source):
            rows.begin_preparing(directory)
            self.write(directory, rows.read_splits(self.data, self.validation, self.test))
            rows.finish_preparing(directory, source)

    def write(self, directory: Path, splits: Mapping[str, Sequence[rows.Row]]) -> None:
        """Write the arrays of each split; a task does it in its own way."""
        raise NotImplementedError

    def export(self, model: Any, directory: Path) -> None:
        """In the form that from_pretrained reads."""
        model.save_pretrained(directory / "model")
        self.tokens.save_pretrained(directory / "model")
