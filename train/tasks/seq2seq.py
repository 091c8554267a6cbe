"""Train or fine-tune a speech model of Hugging Face transformers: sound in, text out.

An encoder reads the log-mel spectrum of a recording, and a decoder writes its words, as in Whisper.
The measure is the word error rate of the text that the model generates.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn

from ..config import flag, switch, whole, word
from ..errors import RefusedError, shared_refusal
from . import rows
from .huggingface import OnText

soundfile: Any = importlib.import_module("soundfile")
IGNORED = -100  # the label that transformers ignores
PROMPT = 4  # tokens of Whisper's: it begins, the language, what to do, and no times
FRAMES_A_SECOND = 50  # of Whisper's encoder: 100 of the spectrum, of which it joins two


class Recordings:
    """Pairs (sound as the model takes it, tokens of shape (length,), int64)."""

    def __init__(self, files: list[str], texts: rows.Texts, extractor: Any) -> None:
        self.files = files
        self.texts = texts
        self.extractor = extractor

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[dict[str, Tensor], Tensor]:
        file = self.files[index]
        try:
            sound, rate = soundfile.read(file, dtype="float32", always_2d=True)
        except (OSError, RuntimeError) as error:
            raise RuntimeError(f"cannot read the recording {file}: {error}") from error
        made = self.extractor(sound.mean(axis=1), sampling_rate=rate)
        return {name: value[0] for name, value in made.items()}, self.texts[index]


@dataclass
class Seq2Seq(OnText):
    """Speech to text; recordings that are too long lose their end, and so do texts."""

    model_name: str = flag("whisper", word, "MODEL", "local directory, or a type (%(default)s)")
    audio: str = flag("audio", word, "COLUMN", "with the path of a file, seen from --data's place")
    text: str = flag("text", word, "COLUMN", "with what is said (%(default)s)")
    length: int = flag(128, whole(2), "N", "most tokens of a text (%(default)s)")
    loss_only: bool = switch("do not generate in validations, which then have the loss alone")

    name = "seq2seq"
    unit = "nats per token"
    counted = "tokens"
    defaults: ClassVar = {"lr": 1e-5, "weight_decay": 0.01, "eval_batch_size": 8}
    _kind = "AutoModelForSpeechSeq2Seq"
    _tokens_needed = ("eos", "pad")

    def __post_init__(self) -> None:
        super().__post_init__()
        most = getattr(self.config, "max_target_positions", None)
        if most is not None and self.length + PROMPT > most:
            raise shared_refusal(
                f"--length is {self.length}, and {self.model_name} writes {most} tokens at most, "
                f"{PROMPT} of them before the text; type --length {most - PROMPT}",
            )
        if (Path(self.model_name) / "preprocessor_config.json").exists():
            auto: Any = transformers.AutoFeatureExtractor
            self.extractor: Any = auto.from_pretrained(self.model_name, local_files_only=True)
        else:
            seconds = getattr(self.config, "max_source_positions", 1500) // FRAMES_A_SECOND
            make: Any = transformers.WhisperFeatureExtractor
            self.extractor = make(
                getattr(self.config, "num_mel_bins", 80), chunk_length=max(1, seconds)
            )

    def by_type(self) -> dict[str, Any]:
        start = {"decoder_start_token_id": self.tokens.pad_token_id}
        return {**super().by_type(), **start, "begin_suppress_tokens": None}

    def write(self, directory: Path, splits: Mapping[str, rows.Rows]) -> dict[str, Any]:
        listed = {}
        for split, of in splits.items():
            place = Path(of.file).parent
            files = [place / name for name in of.texts("--audio", self.audio)]
            for row, file in zip(of.places, files, strict=True):
                self._refuse(of, row, file)
            listed[split] = [str(file.resolve()) for file in files]
            rows.write(directory, split, map(self._encode, of.texts("--text", self.text)))
        return {"files": listed}

    def _refuse(self, of: rows.Rows, row: int, file: Path) -> None:
        """Raises RefusedError where a file is not a recording, or has another sampling rate."""
        try:
            rate = soundfile.info(str(file)).samplerate
        except (OSError, RuntimeError) as error:
            raise of.refusal("--audio", row, f"names {file}: {error}") from error
        if rate != (wanted := self.extractor.sampling_rate):
            raise RefusedError(
                f"--audio: {file} has {rate:,} samples per second, and the model takes {wanted:,}; "
                f"run ffmpeg -i {file} -ar {wanted} OUT.wav for each"
            )

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self.tokens(text, truncation=True, max_length=self.length)["input_ids"]
        # The model puts its start token there by itself.
        ids = ids[ids[:1] == [self.config.decoder_start_token_id] :]
        return ids or [self.tokens.eos_token_id]

    def read(self, directory: Path, split: str) -> Recordings:
        texts = rows.Texts(directory, split)
        return Recordings(self.facts["files"][split], texts, self.extractor)

    def amount(self, split: str) -> str:
        return f"{len(self.splits[split]):,} recordings"

    def collate(self, samples: list[tuple[dict[str, Any], Tensor]]) -> dict[str, Any]:
        """Return the batch, padded to its longest text."""
        sounds, texts = zip(*samples, strict=True)
        labels = nn.utils.rnn.pad_sequence(list(texts), True, IGNORED)
        padded = self.extractor.pad(list(sounds), return_tensors="pt")
        return {"sound": dict(padded), "labels": labels}

    def loss(self, model: nn.Module, batch: dict[str, Any]) -> tuple[Tensor, Tensor]:
        labels = batch["labels"]
        logits = model(**batch["sound"], labels=labels).logits.float()  # which shifts them itself
        nats = F.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum"
        )
        return nats, (labels != IGNORED).sum()

    def measure(self, model: Any, batch: dict[str, Any]) -> dict[str, Tensor | float]:
        loss, count = self.loss(model, batch)
        pairs = [] if self.loss_only else zip(*self._texts(model, batch), strict=True)
        counted = [(distance(a.split(), b.split()), len(a.split())) for a, b in pairs]
        errors, words = (float(sum(of)) for of in zip(*counted, strict=True)) if counted else (0, 0)
        return {"loss": loss, "count": count, "errors": errors, "words": words}

    def _texts(self, model: Any, batch: dict[str, Any]) -> tuple[list[str], list[str]]:
        """The reference texts of a batch, and the texts that the model generates for it."""
        labels = batch["labels"]
        ids = model.generate(
            **batch["sound"],
            max_new_tokens=self.length,
            num_beams=1,
            do_sample=False,
            use_cache=True,
        )
        decode = functools.partial(self.tokens.batch_decode, skip_special_tokens=True)
        return decode(labels.masked_fill(labels == IGNORED, self.tokens.pad_token_id)), decode(ids)

    def report(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """The word error rate: words to change, remove or insert, per word of the references."""
        return {} if self.loss_only else {"wer": float(sums["errors"] / sums["words"].clamp(min=1))}

    @torch.no_grad()
    def sample(self, model: Any, seed: int) -> str:  # noqa: ARG002
        """The reference of the first held-out recording, and the text that the model generates."""
        batch = self.collate([self.splits["validation"][0]])
        device = next(model.parameters()).device
        sound = {name: value.to(device) for name, value in batch["sound"].items()}
        references, generated = self._texts(model, {"sound": sound, "labels": batch["labels"]})
        return f"references:  {references[0]}\nheard: {generated[0]}"

    def export(self, model: Any, directory: Path) -> None:
        super().export(model, directory)
        self.extractor.save_pretrained(directory / "model")


def distance(one: Sequence[str], other: Sequence[str]) -> int:
    """The fewest items to change, remove or insert to make one list of the other (Levenshtein)."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, start=1):
        before, row[0] = row[0], i
        for j, b in enumerate(other, start=1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]
