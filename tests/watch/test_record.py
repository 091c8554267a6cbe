"""--record keeps what every rank did, and --result what each used, as it is."""

import json
import os
import signal
from pathlib import Path

from tests.support.launching import WORKERS, launch
from tests.support.processes import until
from tests.support.watching import launched
from tests.watch.conftest import Recorded
from tests.watch.ranks import recorder_and_guard

USES = """
import os, resource, sys
held = bytearray(200 << 20)
for i in range(0, len(held), 4096):
    held[i] = 1
end = 0.3
import time
while time.process_time() < end:
    pass
used = resource.getrusage(resource.RUSAGE_SELF)
figures = (os.environ["RANK"], used.ru_utime, used.ru_stime, used.ru_maxrss,
           used.ru_nivcsw, used.ru_majflt)
# One write: rank 0 may be ended between two, and print makes one for each value under -u.
sys.stdout.write(f"used {' '.join(map(str, figures))}\\n")
sys.exit(int(sys.argv[1]) if os.environ["RANK"] == "1" else 0)
"""


def test_what_a_rank_used_is_what_it_says_itself_and_the_record_has_the_same(
    tmp_path: Path,
) -> None:
    (tmp_path / "uses.py").write_text(USES)
    kept = ("--record", tmp_path / "record", "--result", tmp_path / "result.json")
    done = launch("--nproc", 2, "--quiet", *kept, tmp_path / "uses.py", 3)
    assert done.returncode == 3, done.stderr
    words = (line.split() for line in done.stdout.splitlines() if line.startswith("used"))
    said = {int(rank): rest for _, rank, *rest in words}
    ranks = json.loads((tmp_path / "result.json").read_text())["ranks"]
    for one in ranks:
        if one["rank"] not in said:  # it was ended before it could tell
            assert one["told"]
            continue
        user, system, kilobytes, switches, faults = map(float, said[one["rank"]])
        assert user <= one["user_seconds"] + 0.01 < user + 60
        assert system <= one["system_seconds"] + 0.01 < system + 60
        assert one["peak_bytes"] >= kilobytes * 1024 >= 200 << 20
        assert one["peak_bytes"] < 2 * kilobytes * 1024
        assert switches <= one["involuntary_switches"] < switches + 10_000
        assert faults <= one["major_faults"] < faults + 10_000
    assert 1 in said
    ended = {line["rank"]: line for line in Recorded(tmp_path / "record").of_kind("ended")}
    for one in ranks:
        assert ended.pop(one["rank"]).items() >= one.items()
    assert not ended


def test_events_come_in_their_order_with_the_first_failure_and_its_traceback(
    failed_twice: Recorded,
) -> None:
    lines = failed_twice.lines
    assert [one["rank"] for one in lines[0]["explain"]["workers"]] == [0, 1]
    assert lines[0]["explain"]["sources"]["world_size"]["value"] == 2
    kinds = [line["kind"] for line in lines if line["kind"] not in ("sample", "output", "note")]
    attempt = "attempt ended said ended"
    assert " ".join(kinds) == f"start {attempt} restart {attempt} end"
    assert [line["restart"] for line in failed_twice.of_kind("attempt")] == [0, 1]
    assert failed_twice.of_kind("said")[0]["what"] == "failure"
    (end,) = failed_twice.of_kind("end")
    assert end["status"] == 1
    assert "ValueError: bad" in end["traceback"]
    assert "failed first, after 1 restart: rank 1" in end["words"][0]


def test_a_sample_has_a_figure_of_each_rank_and_the_guard_stays_small(tmp_path: Path) -> None:
    """64 MiB of what rank 1 holds are in its memory, and not in rank 0's or in the guard's."""
    script = tmp_path / "holds.py"
    script.write_text(
        "import os, time\n"
        "held = b'x' * (64 << 20) if os.environ['RANK'] == '1' else b''\n"
        "print('ready', flush=True)\ntime.sleep(3600)\n"
    )
    record = Recorded(tmp_path / "record")
    with launched(
        "--nproc", 2, "--record", record.directory, script, directory=tmp_path
    ) as running:
        running.read_until(2)
        recorder, guard = recorder_and_guard(running.pid)
        until(lambda: len(record.of_kind("sample")) > 3, "there are samples")
        until(lambda: record.of_kind("output"), "the first line was seen")
        last = record.of_kind("sample")[-1]  # later ones may be of ranks that end
        size = Path(f"/proc/{guard}/status").read_text()
        kilobytes = int(size.partition("VmHWM:")[2].split()[0])
        running.send(signal.SIGTERM)
        running.status()
    assert kilobytes < 16 << 10
    assert not Path(f"/proc/{recorder}").exists()
    assert last["ranks"] == [0, 1]
    assert 60 << 20 < last["memory"][1] - last["memory"][0] < 80 << 20


def test_a_launcher_that_is_killed_ends_the_record(tmp_path: Path) -> None:
    record = Recorded(tmp_path / "record")
    flags = ("--nproc", 2, "--record", record.directory)
    with launched(*flags, WORKERS / "sleep.py", directory=tmp_path) as running:
        until(lambda: record.of_kind("attempt"), "it began")
        os.kill(running.pid, signal.SIGKILL)
        running.launcher.wait()
        assert running.all_gone()  # the recorder too
