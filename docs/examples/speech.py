"""Write down what is said: a Hugging Face model such as Whisper, on rows of recordings and texts.

python -m spawnlaunch --nproc 2 -- --task docs/examples/speech.py:Speech --data said.csv
"""

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
import transformers

from spawnlaunch.train.config import flag, whole, word
from spawnlaunch.train.tasks import media, rows
from spawnlaunch.train.tasks.huggingface import OnText

IGNORED = -100  # the label that transformers ignores


class Recordings:
    """Pairs (the spectrum that the model takes, tokens of shape (length,))."""

    def __init__(self, files, texts, extractor):
        self.files, self.texts, self.extractor = files, texts, extractor

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        rate = self.extractor.sampling_rate
        sound = media.read_sound(self.files[index], rate)
        return self.extractor(sound, sampling_rate=rate).input_features[0], self.texts[index]


@dataclass
class Speech(OnText):
    """Recordings and texts that are too long lose their end."""

    model_name: str = flag("whisper", word, "MODEL", "local directory, or a type (%(default)s)")
    audio: str = flag("audio", word, "COLUMN", "with the path of a file, seen from --data's place")
    text: str = flag("text", word, "COLUMN", "with what is said (%(default)s)")
    length: int = flag(128, whole(2), "N", "most tokens of a text (%(default)s)")

    name = "speech"
    unit = "nats per token"
    counted = "tokens"
    defaults = {"lr": 1e-5, "weight_decay": 0.01, "eval_batch_size": 8}  # noqa: RUF012
    _kind = "AutoModelForSpeechSeq2Seq"
    _tokens_needed = ("eos", "pad")

    def by_type(self):  # what a directory has, and a type such as "whisper" has not
        start = {"decoder_start_token_id": self.tokens.pad_token_id}
        return {**super().by_type(), **start, "begin_suppress_tokens": None}

    def extractor(self):
        if (Path(self.model_name) / "preprocessor_config.json").exists():
            return transformers.AutoFeatureExtractor.from_pretrained(self.model_name)
        seconds = self.config.max_source_positions // 50  # the encoder makes 50 states a second
        return transformers.WhisperFeatureExtractor(self.config.num_mel_bins, chunk_length=seconds)

    def write(self, directory, splits):  # rank 0 alone: tokens, and the paths of the recordings
        files, rate = {}, self.extractor().sampling_rate
        for split, of in splits.items():
            place = Path(of.file).parent
            files[split] = [
                str((place / name).resolve()) for name in of.texts("--audio", self.audio)
            ]
            for file in files[split]:
                media.read_sound(file, rate)  # refuses a broken one before the first step
            rows.write(directory, split, map(self.encode, of.texts("--text", self.text)))
        return {"files": files}

    def encode(self, text):
        ids = self.tokens(text, truncation=True, max_length=self.length)["input_ids"]
        # The model puts its start token there by itself.
        ids = ids[ids[:1] == [self.config.decoder_start_token_id] :]
        return ids or [self.tokens.eos_token_id]

    def read(self, directory, split):
        texts = rows.Texts(directory, split)
        return Recordings(self.facts["files"][split], texts, self.extractor())

    def amount(self, split):
        return f"{len(self.splits[split]):,} recordings"

    def collate(self, samples):  # padded to the longest text
        sounds, texts = zip(*samples, strict=True)
        labels = torch.nn.utils.rnn.pad_sequence(list(texts), True, IGNORED)
        return torch.stack([torch.as_tensor(sound) for sound in sounds]), labels

    def loss(self, model, batch):
        sounds, labels = batch
        logits = model(input_features=sounds, labels=labels).logits.float()
        nats = F.cross_entropy(
            logits.transpose(1, 2), labels, ignore_index=IGNORED, reduction="sum"
        )
        return nats, (labels != IGNORED).sum()

    def measure(self, model, batch):
        loss, count = self.loss(model, batch)
        pairs = [(said.split(), heard.split()) for said, heard in self.texts(model, batch)]
        errors, words = sum(distance(*pair) for pair in pairs), sum(len(said) for said, _ in pairs)
        return {"loss": loss, "count": count, "errors": errors, "words": words}

    def texts(self, model, batch):
        """Pairs of a text, and what the model writes for its recording."""
        sounds, labels = batch
        ids = model.generate(sounds, max_new_tokens=self.length, num_beams=1, do_sample=False)
        said = labels.masked_fill(labels == IGNORED, self.tokens.pad_token_id)
        both = (self.tokens.batch_decode(of, skip_special_tokens=True) for of in (said, ids))
        return zip(*both, strict=True)

    def report(self, sums):  # word error rate: words to change, remove or insert, per word
        return {"wer": sums["errors"] / sums["words"].clamp(min=1)}

    def export(self, model, directory):
        super().export(model, directory)
        self.extractor().save_pretrained(directory / "model")


def distance(one, other):
    """The fewest words to change, remove or insert to make one list of the other (Levenshtein)."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, start=1):
        before, row[0] = row[0], i
        for j, b in enumerate(other, start=1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]
