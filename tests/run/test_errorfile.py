"""The error files of torch and of others, and what is taken from them."""

import pytest

from spawnlaunch.run.errorfile import last_words, traceback_in
from spawnlaunch.run.outcome import Outcome

STACK = "Traceback (most recent call last):\n  ...\nValueError: bad\n"


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"message": {"message": "ValueError: bad", "extraInfo": {"py_callstack": STACK}}}, STACK),
        ({"message": {"message": "ValueError: bad"}}, "ValueError: bad"),
        ({"message": "it is bad"}, "it is bad"),
        ({"message": {"message": 7}}, None),
        ({"message": None}, None),
        ({}, None),
        (["no", "record"], None),
        (None, None),
    ],
)
def test_the_traceback_is_taken_from_every_form_of_record(record, words):
    assert traceback_in(record) == words


def test_a_broken_record_gives_way_to_the_tail_of_stderr(tmp_path):
    error_file, stderr = tmp_path / "error.json", tmp_path / "stderr.log"
    error_file.write_text('{"message": {"mess')
    stderr.write_bytes(b"old\n" * 10000 + b"\xff last words\n")
    outcome = Outcome(0, 0, 1, 1, 0.0, 0, str(error_file), str(stderr))
    words = last_words(outcome)
    assert words is not None
    assert words.splitlines()[-1] == "\ufffd last words"
    assert len(words.splitlines()) == 60


def test_nothing_kept_is_nothing_said(tmp_path):
    outcome = Outcome(0, 0, 1, 1, 0.0, 0, str(tmp_path / "none"), str(tmp_path / "neither"))
    assert last_words(outcome) is None
