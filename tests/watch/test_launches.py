"""A directory of --record has a file for each launch, and its page has each launch."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spawnlaunch.watch import story
from tests.support.launching import LAUNCHER, WORKERS, clean_environ, run, start
from tests.support.matrix import mostly_full
from tests.support.patience import PATIENCE_S
from tests.support.processes import until
from tests.support.watching import Launch, launched
from tests.watch.conftest import Recorded
from tests.watch.ranks import recorder_and_guard

FAILS = "import sys, time\ntime.sleep(1)\nraise ValueError(sys.argv[1])\n"


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of two launches at the same time, each of one rank that fails."""
    directory = tmp_path_factory.mktemp("two")
    (directory / "fails.py").write_text(FAILS)
    flags = ("--quiet", "--record", directory / "record", directory / "fails.py")
    launchers = [start(*LAUNCHER, *flags, word) for word in ("first", "second")]
    assert [one.wait(PATIENCE_S) for one in launchers] == [1, 1]
    return directory / "record"


def test_two_at_once_are_two_on_the_page_with_their_own_events_the_newest_first(
    two: Path,
) -> None:
    files = sorted(two.glob("*.jsonl"))
    assert len(files) == 2
    begun = Recorded(two).of_kind("start")  # of files whose names sort by time, and tell the run
    times = [one["explain"]["world"]["run_id"].partition("-")[0] for one in begun]
    assert times == sorted(times)
    for file, one in zip(files, begun, strict=True):
        assert one["explain"]["world"]["run_id"] in file.name
    launches, drawn = story.read(str(two)).launches, Recorded(two).page
    assert launches[0].began >= launches[1].began
    for one in launches:
        pids = one.of_kind("attempt")[0]["pids"]
        assert [end["pid"] for end in one.of_kind("ended")] == [*pids.values()]
        word = one.starts[0]["command"][-1]
        assert word in one.of_kind("end")[0]["traceback"]
        assert drawn.count(f"ValueError: {word}") == 1
    words = [one.starts[0]["command"][-1] for one in launches]
    assert sorted(words) == ["first", "second"]
    shown = re.findall(r"<details([^>]*)>.*?<pre>[^<]*fails\.py (\w+)</pre>", drawn, re.DOTALL)
    is_open = [(word, " open=" in details) for details, word in shown]
    assert is_open == [(words[0], True), (words[1], False)]


def test_files_that_were_put_together_are_two_launches(two: Path, tmp_path: Path) -> None:
    (tmp_path / "all.jsonl").write_text("".join(file.read_text() for file in two.glob("*.jsonl")))
    apart, together = (
        sorted(repr(one._replace(files=())) for one in story.read(str(place)).launches)
        for place in (two, tmp_path)
    )
    assert apart == together


def test_a_record_that_was_torn_anywhere_loses_one_line(two: Path, tmp_path: Path) -> None:
    whole, other = sorted(two.glob("*.jsonl"))
    data = whole.read_bytes()
    (tmp_path / other.name).write_bytes(other.read_bytes())
    torn = tmp_path / whole.name
    ends = [i + 1 for i, byte in enumerate(data) if byte == ord("\n")]
    for length in sorted({*ends, *range(1, len(data), 997), len(data) - 2}):
        torn.write_bytes(data[:length])
        found = story.read(str(tmp_path))
        full = data[:length].count(b"\n")
        if not full:
            assert found.unread == [f"{torn.name}: no launch begins in it"]
            assert len(found.launches) == 1
            continue
        (one,) = (each for each in found.launches if torn.name in each.files)
        is_cut = length not in {0, *ends, *(end - 1 for end in ends)}
        assert one.unreadable == ({torn.name: 1} if is_cut else {})
        others = [each for each in found.launches if each is not one]
        assert [each.of_kind("end")[0]["status"] for each in others] == [1]


def test_what_is_missing_is_said_on_the_page(two: Path, tmp_path: Path) -> None:
    file = max(two.glob("*.jsonl"))
    (tmp_path / file.name).write_bytes(file.read_bytes()[:-20])
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "gone.jsonl").symlink_to("nowhere")  # or another user's
    (tmp_path / "kept.jsonl").mkdir()
    drawn = Recorded(tmp_path).page
    assert f"{file.name}: 1 line" in drawn
    assert "empty.jsonl: no launch begins in it." in drawn
    assert "gone.jsonl: No such file or directory." in drawn
    assert "kept.jsonl: Is a directory." in drawn
    assert "No record of" in drawn


@pytest.mark.parametrize("number", mostly_full([signal.SIGKILL, signal.SIGTERM]))
def test_that_a_recorder_has_died_is_said_at_once_and_at_the_end_and_the_launch_goes_on(
    tmp_path: Path, number: signal.Signals
) -> None:
    record = tmp_path / "record"
    with launched(
        *("--nproc", 2, "--quiet", "--record", record, WORKERS / "sleep.py"), directory=tmp_path
    ) as running:
        until(lambda: Recorded(record).of_kind("attempt"), "it began")
        recorder, _ = recorder_and_guard(running.pid)
        os.kill(recorder, number)
        until(lambda: not Path(f"/proc/{recorder}/stat").exists(), "it was reaped")
        until(lambda: "the record breaks off here" in running.stderr, "it is said")
        running.send(signal.SIGINT)
        running.status()
        said = [line for line in running.stderr.splitlines() if "record" in line]
    assert len(said) == 2
    assert f"(pid {recorder})" in said[1]
    assert f"spawnlaunch report {record} " in said[1]
    assert "No record of" in Recorded(record).page


@contextmanager
def told_to_end_with_its_recorder_stopped(directory: Path) -> Iterator[tuple[Launch, int, int]]:
    """A launch that got SIGTERM, and the pids of its recorder and its guard."""
    flags = ("--nproc", 2, "--record", directory / "record", WORKERS / "sleep.py")
    with launched(*flags, directory=directory) as running:
        until(lambda: Recorded(directory / "record").of_kind("attempt"), "it began")
        recorder, guard = recorder_and_guard(running.pid)
        os.kill(recorder, signal.SIGSTOP)
        running.send(signal.SIGTERM)
        yield running, recorder, guard


@pytest.mark.full
def test_a_recorder_that_is_stopped_is_not_waited_for_long(tmp_path: Path) -> None:
    with told_to_end_with_its_recorder_stopped(tmp_path) as (running, recorder, _):
        assert running.status() == 128 + signal.SIGTERM
        assert f"(pid {recorder}) did not end within" in running.stderr


def test_a_second_signal_ends_the_wait_for_a_recorder_and_the_status_stays_that_of_the_launch(
    tmp_path: Path,
) -> None:
    with told_to_end_with_its_recorder_stopped(tmp_path) as (running, recorder, guard):
        until(lambda: not Path(f"/proc/{guard}").exists(), "only the recorder is left")
        running.send(signal.SIGINT)
        assert running.status() == 128 + signal.SIGTERM
        assert f"(pid {recorder}) had not ended when SIGINT came" in running.stderr


def test_a_record_for_which_there_is_no_room_is_said_once(tmp_path: Path) -> None:
    """RLIMIT_FSIZE is one way to have none: the first line does not fit, or a later one."""
    flags = ("--nproc", 2, "--quiet", "--no-python", "sleep", 1)
    for room, status in ((2000, 2), (0, 0)):
        record = tmp_path / str(status)
        if not room:
            run(*LAUNCHER, "--record", tmp_path / "whole", *flags)
            (whole,) = (tmp_path / "whole").iterdir()
            room = len(whole.read_bytes().split(b"\n")[0]) + 200
        # Without bytecode, which would be cut off too, and stay in the tree.
        bare = clean_environ(PYTHONDONTWRITEBYTECODE="1")
        command = (*LAUNCHER, "--record", record, *flags)
        done = run("prlimit", f"--fsize={room}", *command, environ=bare)
        assert done.returncode == status
        assert done.stderr.count(str(record)) == 1 + (status == 2)
        assert bool(list(record.iterdir())) == (status == 0)
