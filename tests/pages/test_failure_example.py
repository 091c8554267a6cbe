"""The two ends of a failed launch in the README are as they come out now, but for numbers."""

import re

import pytest

from docs import failure_example
from tests.support.launching import ROOT


@pytest.mark.full
def test_the_two_ends_of_a_failed_launch_are_those_of_today():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    changing = re.compile(r"[\d.:]+|on \w+|host +: .*")
    shown, now = (changing.sub("#", each) for each in (text, failure_example.with_ends(text)))
    assert shown == now
    assert "failed first: rank 1" in text
