"""The error files of torch and of others, and what is taken from them."""

import json
import os
import time
from pathlib import Path

import pytest

from spawnlaunch.outcome import endings
from spawnlaunch.outcome.endings import TAIL_BYTES, last_words, traceback_in
from spawnlaunch.outcome.failures import WorkerExit
from tests.support.launching import launch
from tests.support.matrix import mostly_full
from tests.support.watching import launched

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
    failure = WorkerExit(0, 0, 1, 1, 0.0, 0.0, (0.0, 0.0), 0, str(error_file), str(stderr))
    words = last_words(failure)
    assert words is not None
    assert words.splitlines()[-1] == "\ufffd last words"
    assert len(words.splitlines()) == 60


BAD = {
    "fifo": "os.mkfifo(path)",
    "endless": "os.symlink('/dev/zero', path)",
    "deep directory": (
        "os.mkdir(path); os.chdir(path); [(os.mkdir('d'), os.chdir('d')) for _ in range(300)]"
    ),
}


@pytest.mark.parametrize("kind", mostly_full(BAD, 2))
def test_whatever_a_worker_makes_of_its_error_file_its_failure_is_told(kind: str, tmp_path: Path):
    script, ours = tmp_path / "script.py", tmp_path / "ours.json"
    script.write_text(
        "import os, sys, time\ntime.sleep(600 if os.environ['RANK'] == '0' else 0)\n"
        "path = os.environ['TORCHELASTIC_ERROR_FILE']\n"
        f"{BAD[kind]}\nprint('my last words', file=sys.stderr)\nos._exit(7)\n"
    )
    environ = {"TORCHELASTIC_ERROR_FILE": str(ours)}
    with launched("--nproc", 2, script, directory=tmp_path, environ=environ) as one:
        assert one.status() == 7, one.stderr
        assert one.stderr.count("my last words") == 1
    assert "my last words" in json.loads(ours.read_text())["message"]["extraInfo"]["py_callstack"]


def test_a_log_that_is_not_there_or_has_become_a_pipe_says_nothing(tmp_path: Path):
    files = str(tmp_path / "none"), str(tmp_path / "stderr.log")
    for _ in range(2):
        assert last_words(WorkerExit(0, 0, 1, 1, 0.0, 0.0, (0.0, 0.0), 0, *files)) is None
        if not os.path.exists(files[1]):
            os.mkfifo(files[1])


def test_what_an_earlier_launch_left_in_the_same_file_is_not_shown(tmp_path: Path):
    script = tmp_path / "fails.py"
    script.write_text(
        "import os, sys\n"
        "if sys.argv[1:]:\n    raise RuntimeError(sys.argv[1])\n"
        "os.kill(os.getpid(), 9)\n"
    )
    kept = ("--quiet", "--redirects", "3", "--log-dir", tmp_path / "{rank}", script)
    assert "RuntimeError: of before" in launch(*kept, "of before").stderr
    second = launch(*kept)
    assert "died of SIGKILL" in second.stderr
    assert "of before" not in second.stderr


def test_of_endless_words_the_last_are_told(tmp_path: Path):
    error_file = tmp_path / "error.json"
    error_file.write_text(json.dumps({"message": "x" * 10**6 + "the end"}))
    words = last_words(WorkerExit(0, 0, 1, 1, 0.0, 0.0, (0.0, 0.0), 0, str(error_file), None))
    assert words is not None
    assert words.endswith("xthe end")
    assert len(words) <= TAIL_BYTES


def with_times(path: Path, said: object, written_s: float, **more: object) -> WorkerExit:
    """A worker that ended just now, after 100 s, with an error file."""
    record = {"message": {"message": "bad", "extraInfo": {"timestamp": said}}}
    path.write_text(json.dumps(record))
    os.utime(path, (written_s, written_s))
    now = time.monotonic()
    one = WorkerExit(3, 3, 1, 1, now - 100.0, now, (now, now), 0, str(path), None)
    return one._replace(**more)


def failed_s(one: WorkerExit) -> float:
    """How long before its end it had failed."""
    judged, failure = endings.judged(one, "node0", None)
    assert failure is not None
    return judged.ended_at - judged.failed_between[1]


def test_a_failure_counts_by_the_time_of_its_error_file(tmp_path: Path):
    path, ago = tmp_path / "error.json", int(time.time() - 20.0) + 0.01
    assert failed_s(with_times(path, str(int(ago)), ago)) == pytest.approx(20.0, abs=9)
    # The file's own time is finer, where it is of this machine's clock.
    exact = failed_s(with_times(path, str(int(ago)), ago))
    coarse = failed_s(with_times(path, str(int(ago)), ago + 3600))
    assert coarse < exact < coarse + 1.1


def test_a_failure_is_not_earlier_than_its_error_file_which_may_be_of_a_whole_second(
    tmp_path: Path,
):
    path, whole = tmp_path / "error.json", int(time.time() - 20.0)
    half_a_second_later = failed_s(with_times(path, str(whole), whole + 0.5))
    exact = failed_s(with_times(path, str(whole), float(whole)))
    assert half_a_second_later < exact <= time.time() - whole


@pytest.mark.parametrize("said", ["soon", None, [], {}, "nan", "inf", "-1e999", "1e12", True])
def test_a_time_that_is_none_changes_nothing(said: object, tmp_path: Path):
    """One that is to come cannot be; one of long ago is that of the start, at the earliest."""
    assert failed_s(with_times(tmp_path / "e.json", said, time.time() - 5)) in (
        0.0,
        pytest.approx(100.0),
    )


def test_one_that_was_told_to_end_after_it_had_failed_has_failed_by_itself(tmp_path: Path):
    ago = time.time() - 20.0
    one = with_times(tmp_path / "e.json", str(int(ago)), ago, code=-15, sent=15)
    for told_s, code in ((1.0, 1), (90.0, None)):  # Python's status of an exception
        told = one._replace(signalled_at=one.ended_at - told_s)
        failure = endings.judged(told, "node0", None)[1]
        assert (failure.cause.code if failure else None) == code
