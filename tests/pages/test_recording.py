"""The pictures of a terminal: a program makes them, and they show what they are to show."""

import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from docs.recording import SCENES
from tests.support.launching import ROOT, run
from tests.support.required import require_programs

COMMITTED = ROOT / "docs"
SHOWN = ("rank 0  local 0  numa", "failed first: rank 1", "status 1", "the others wait for rank 1")


def lines_of(path: Path) -> str:
    """All lines that the film shows, each as often as it comes."""
    texts = ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")
    return "\n".join("".join(text.itertext()) for text in texts)


def check(place: Path) -> None:
    assert "the others wait for rank 1" in lines_of(place / "top.svg")
    lines = lines_of(place / "recording.svg")
    assert [scene.line for scene in SCENES if f"$ {scene.line}" not in lines] == []
    assert [words for words in SHOWN if words not in lines] == []


def test_the_recording_shows_what_it_is_to_show_and_fetches_nothing():
    check(COMMITTED)
    text = "".join((COMMITTED / name).read_text() for name in ("recording.svg", "top.svg"))
    assert {*re.findall(r"https?://\S+?(?=\")", text)} == {"http://www.w3.org/2000/svg"}
    assert text.index(".f{") < text.index("animation-name")  # which comes after would take it back
    assert not re.search(r"url\(|@import|<script", text)


@pytest.mark.full
def test_the_recording_is_made_by_a_program(tmp_path: Path):
    require_programs("tmux", package="tmux")
    run(sys.executable, "-m", "docs.recording", "--out", tmp_path, check=True)
    check(tmp_path)
