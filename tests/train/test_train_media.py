"""Images in directories and recordings of speech, and the examples that learn of them."""

import functools
import json
import random
import runpy
import wave
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spawnlaunch.train.errors import RefusedError
from tests.support.late import Late
from tests.train.ranks import ROOT, complete, metrics, run

NEEDED = ("transformers", "PIL", "soundfile")
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not all(map(find_spec, NEEDED)), reason=f"needs {', '.join(NEEDED)}"),
]
torch = Late("torch")
media = Late("spawnlaunch.train.tasks.media")
EXAMPLES = ROOT / "docs" / "examples"
COMMON = ("--device", "cpu", "--warmup", "0", "--log-every", "4", "--out", "here")
RESNET = json.dumps({"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]})
IMAGES = (
    *("--task", f"{EXAMPLES}/images.py:Images", "--model-config", RESNET, "--size", "16"),
    *("--batch-size", "8", "--lr", "1e-2", "--eval-batch-size", "5"),
)
WHISPER = json.dumps(
    {
        **{f"{part}_{what}": 1 for part in ("encoder", "decoder") for what in ("layers",)},
        **{f"{part}_attention_heads": 2 for part in ("encoder", "decoder")},
        **{f"{part}_ffn_dim": 64 for part in ("encoder", "decoder")},
        "d_model": 32,
        "num_mel_bins": 16,
        "max_source_positions": 50,
        "max_target_positions": 40,
    }
)
SPEECH = (
    *("--task", f"{EXAMPLES}/speech.py:Speech", "--model-name", "whisper"),
    *("--model-config", WHISPER),
    *("--data", "said.csv", "--length", "12", "--lr", "1e-2"),
)
COLOURS = {"blue": (20, 20, 200), "red": (200, 20, 20)}


def paint(folder: Path, count: int) -> None:
    """Images of two classes, of sizes of their own."""
    from PIL import Image

    draw = random.Random(str(folder))
    for colour, pixels in COLOURS.items():
        (folder / colour).mkdir(parents=True)
        for number in range(count):
            size = draw.randint(12, 40), draw.randint(12, 40)
            Image.new("RGB", size, pixels).save(folder / colour / f"{number}.png")


def tone(file: Path, hertz: float, rate: int = 16_000) -> None:
    """A recording of half a second."""
    sound = 0.3 * np.sin(2 * np.pi * hertz * np.arange(rate // 2) / rate)
    with wave.open(str(file), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes((sound * 32767).astype("<i2").tobytes())


@pytest.fixture
def spoken(tmp_path: Path) -> Path:
    """Low tones are called low, and high ones high."""
    lines = ["audio,text"]
    for number in range(60):
        high = number % 3 == 0
        tone(tmp_path / f"{number}.wav", (2000 if high else 200) + number)
        lines.append(f"{number}.wav,{'high tone' if high else 'low'}")
    (tmp_path / "said.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_images_of_a_directory_are_told_apart(tmp_path: Path) -> None:
    paint(tmp_path / "images", 30)
    paint(tmp_path / "images" / ".ipynb_checkpoints", 1)
    flags = (*COMMON, *IMAGES, "--data", "images", "--steps", "16")
    (ended,) = complete(1, *flags, cwd=tmp_path)
    assert "(one image in 10), 2 classes" in ended.out
    assert metrics(tmp_path / "here", "accuracy")[-1] == 1.0
    assert (tmp_path / "here" / "model" / "config.json").exists()


def test_other_images_are_held_out_and_a_saved_model_is_used(tmp_path: Path) -> None:
    paint(tmp_path / "images", 16)
    paint(tmp_path / "held", 5)
    data = ("--data", "images", "--validation", "held", "--steps", "8")
    (first, *_) = complete(2, *COMMON, *IMAGES, *data, cwd=tmp_path)
    assert "10 images held out (of held), 2 classes" in first.out
    again = ("--model-name", "here/model", "--model-config", "{}", "--eval-only", "--out", "again")
    complete(2, *COMMON, *IMAGES, *data, *again, cwd=tmp_path)
    before, after = (
        json.loads((tmp_path / out / "evaluation.json").read_text()) for out in ("here", "again")
    )
    assert after["validation"]["loss"] == pytest.approx(before["validation"]["loss"], rel=1e-4)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (["data/1.png"], "data has no images in directories named after their classes, such as"),
        (["data/a/1.png", "data/b/2.png"], "cannot read the image"),
    ],
)
def test_a_directory_without_images_is_refused(tmp_path: Path, made: list[str], said: str) -> None:
    for name in made:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(RefusedError, match=said):
        media.labelled_images(tmp_path / "data")


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tiff"])
def test_an_image_is_seen_as_a_viewer_shows_it(
    tmp_path: Path, suffix: str, orientation: int
) -> None:
    """Its upper left quarter is white, wherever the camera has stored that."""
    from PIL import Image

    shown = np.zeros((32, 32, 3), np.uint8)
    shown[:16, :16] = 255
    turned = np.rot90(shown, {1: 0, 2: 0, 3: 2, 4: 2, 5: 3, 6: 1, 7: 1, 8: 3}[orientation])
    if orientation in (2, 4, 5, 7):
        turned = turned[:, ::-1]
    exif, file = Image.Exif(), tmp_path / f"a.{suffix}"
    exif[0x112] = orientation
    Image.fromarray(np.ascontiguousarray(turned)).save(file, exif=exif)
    seen = np.asarray(media.read_image(str(file))).mean(2)
    quarters = [seen[y : y + 16, x : x + 16].mean() for y in (0, 16) for x in (0, 16)]
    assert [value > 128 for value in quarters] == [True, False, False, False]


@pytest.mark.parametrize("suffix", ["png", "tiff", "pgm"])
def test_16_bits_of_grey_are_as_8(tmp_path: Path, suffix: str) -> None:
    from PIL import Image

    grey = np.arange(256, dtype=np.uint16).reshape(16, 16)
    Image.fromarray(grey * 257).save(tmp_path / f"a.{suffix}")
    seen = np.asarray(media.read_image(str(tmp_path / f"a.{suffix}")))
    assert (seen == grey[:, :, None]).all()


@pytest.mark.parametrize("kind", ["float32", "int32", "broken"])
def test_an_image_that_cannot_be_used_is_named(tmp_path: Path, kind: str) -> None:
    from PIL import Image

    file = tmp_path / "a" / "a.tiff"
    file.parent.mkdir()
    if kind == "broken":
        file.write_bytes(b"II*")
    else:
        Image.fromarray(np.ones((8, 8), kind)).save(file)
    with pytest.raises(RefusedError, match=f"cannot read the image {file}: "):
        media.labelled_images(tmp_path)


def test_links_are_followed_and_no_image_is_taken_twice(tmp_path: Path) -> None:
    paint(tmp_path / "images", 3)
    paint(tmp_path / "elsewhere", 2)
    (tmp_path / "images" / "red" / "more").symlink_to(tmp_path / "elsewhere" / "red")
    (tmp_path / "images" / "red" / "more" / "back").symlink_to(tmp_path / "images" / "red")
    files = [Path(file).name for file, _ in media.labelled_images(tmp_path / "images")]
    assert sorted(files) == sorted(3 * ["0.png", "1.png"] + 2 * ["2.png"])


def test_speech_is_written_down(spoken: Path) -> None:
    flags = (*COMMON, *SPEECH, "--steps", "40", "--eval-every", "0", "--save-every", "0")
    (ended,) = complete(1, *flags, cwd=spoken)
    assert ": 54 recordings to train on" in ended.out
    assert metrics(spoken / "here", "wer")[-1] < 0.5
    assert (spoken / "here" / "model" / "preprocessor_config.json").exists()


def test_a_recording_of_another_rate_is_refused(spoken: Path) -> None:
    tone(spoken / "0.wav", 100, 8_000)
    (ended,) = run(1, *COMMON, *SPEECH, cwd=spoken)
    assert (ended.status, ended.err.count("\n")) == (2, 1), ended
    assert "0.wav has 8,000 samples per second, and the model takes 16,000; run ff" in ended.err


def slowly(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """The distance, as it is defined."""
    if not one or not other:
        return len(one) + len(other)
    return min(
        slowly(one[1:], other) + 1,
        slowly(one, other[1:]) + 1,
        slowly(one[1:], other[1:]) + (one[0] != other[0]),
    )


@functools.cache
def distance() -> Any:
    return runpy.run_path(str(EXAMPLES / "speech.py"))["distance"]


words = st.lists(st.sampled_from("abc"), max_size=5).map(tuple)


@given(words, words)
def test_a_distance_is_the_fewest_changes(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert distance()(one, other) == slowly(one, other)
