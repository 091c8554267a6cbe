"""spawnlaunch.top finds ranks whoever started them, and its figures are those of /proc and ps."""

import os
import signal
import sys
import termios
import time
from pathlib import Path

import pytest

from spawnlaunch.hang import culprits
from spawnlaunch.watch import rank_table, waiting
from spawnlaunch.watch.device_use import Meter
from spawnlaunch.watch.usage import Sampler
from tests.support.launching import WORKERS, clean_environ, run, start
from tests.support.patience import PATIENCE_S
from tests.support.processes import until
from tests.support.required import require_programs
from tests.support.watching import launched
from tests.watch.ranks import TOP, looked_at, ready
from tests.watch.samples import sample

require_programs("ps", package="procps")

BUSY = WORKERS / "busy.py"


def ps(what: str, *pids: int) -> int:
    done = run("ps", "-o", f"{what}=", "-p", ",".join(map(str, pids)), check=True)
    return sum(map(int, done.stdout.split()))


def state(pid: int) -> str:
    return run("ps", "-o", "state=", "-p", pid).stdout.strip()


def proc(pid: int, file: str, name: str) -> str:
    lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    return next(line.split(":")[1].strip() for line in lines if line.startswith(f"{name}:"))


def cpu_s(*pids: int) -> float:
    """Of processes, and of what they have started and has ended."""
    texts = [Path(f"/proc/{pid}/stat").read_text() for pid in pids]
    stats = (text.rpartition(") ")[2].split() for text in texts)
    return sum(int(n) for stat in stats for n in stat[11:15]) / os.sysconf("SC_CLK_TCK")


def tells(guard: int) -> bool:
    files = Path(f"/proc/{guard}/fd").iterdir()
    return any("spawnlaunch-said" in os.readlink(each) for each in files)


def test_the_figures_of_two_ranks_that_wait_are_those_of_ps_and_proc(tmp_path: Path) -> None:
    with launched("--nproc", 2, BUSY, directory=tmp_path) as launch:
        launch.read_until(2)
        # The guard tells of output when a launch has lasted for a second.
        until(lambda: tells(launch.guard), "the guard tells who said something when")
        pids = ready(launch.output.decode())
        found = looked_at({pid: rank for rank, (pid, _) in pids.items()})
        assert set(found) == {0, 1}
        assert len({one["launch"] for one in found.values()}) == 1
        rows = [line.split() for line in run(*TOP, "--once", check=True).stdout.splitlines()]
        for rank, (pid, child) in pids.items():
            one = found[rank]
            assert one["world_size"] == 2
            assert one["memory"] == ps("rss", pid) * 1024
            assert one["memory_below"] == ps("rss", child) * 1024
            peak = int(proc(pid, "status", "VmHWM").removesuffix("kB")) * 1024
            assert one["peak"] == peak > one["memory"] + (90 << 20)
            assert one["threads"] == ps("nlwp", pid) == 4
            assert one["cpu_seconds"] == pytest.approx(cpu_s(pid, child), abs=0.05)
            assert one["cpu_seconds"] >= 0.95  # half a second each
            assert (one["cpu"] < 0.1, one["state"]) == (True, "sleeping")
            assert one["cpus"] == proc(pid, "status", "Cpus_allowed_list")
            assert (one["elsewhere"], one["processes"]) == ("", 1)
            assert 0 <= one["quiet_s"] < 300
            assert [str(rank), str(pid)] in [row[:2] for row in rows]
        launch.launcher.terminate()
        launch.status()


DOES = """
import os, threading, time
time.sleep(2)
print("ready", os.environ["RANK"], time.monotonic(), flush=True)
here = sorted(os.sched_getaffinity(0))
def astray():
    os.sched_setaffinity(0, here[-1:])
    while True: time.sleep(0.01)
if os.environ["RANK"] == "0":
    zeros, null = open("/dev/zero", "rb", buffering=0), open("/dev/null", "wb", buffering=0)
    while True:
        null.write(zeros.read(1 << 16))
        time.sleep(0.001)
threading.Thread(target=astray, daemon=True).start()
os.sched_setaffinity(0, here[:1])
time.sleep(3600)
"""


def counters(pid: int) -> tuple[float, int, int]:
    """CPU seconds, and bytes that were read and written, of a process that has started nothing."""
    return cpu_s(pid), int(proc(pid, "io", "rchar")), int(proc(pid, "io", "wchar"))


def test_what_a_rank_uses_when_it_wrote_and_where_its_threads_run(tmp_path: Path) -> None:
    """What lies between two looks is more than what we see between them, and less than around."""
    (tmp_path / "does.py").write_text(DOES)
    flags = ("--nproc", 2, "--bind", "none", tmp_path / "does.py")
    with launched(*flags, directory=tmp_path) as launch:
        launch.read_until(2)
        read_at = time.monotonic()
        lines = (line.split() for line in launch.output.decode().splitlines())
        written = {int(rank): float(at) for _, rank, at in lines}
        found = looked_at(dict.fromkeys(launch.workers, 0))
        assert set(found) == {0, 1}
        for rank, one in found.items():
            assert written[rank] - 0.001 <= one["output_at"] <= read_at + 0.001
        busy, other = found[0]["pid"], found[1]["pid"]
        sampler = Sampler(Meter(), lambda rank: rank.pid == busy)
        times, seen, told = [], [], []
        for _ in range(2):
            times.append(time.monotonic())
            seen.append(counters(busy))
            told += sampler.sample()
            seen.append(counters(busy))
            times.append(time.monotonic())
            time.sleep(0.5)
        if len(os.sched_getaffinity(0)) > 1:  # else a thread can be nowhere else
            last = str(max(os.sched_getaffinity(0)))
            until(lambda: looked_at({other: 1})[1]["elsewhere"] == last, "the thread is seen there")
        launch.launcher.terminate()
        launch.status()
    longest_s, shortest_s = times[3] - times[0], times[2] - times[1]
    figures = (told[1].cpu, told[1].reads, told[1].writes)
    for i, figure in enumerate(figures):
        ticks = 0.02 if i == 0 else 0  # the clock's
        assert (seen[2][i] - seen[1][i] - ticks) / longest_s <= figure
        assert figure <= (seen[3][i] - seen[0][i] + ticks) / shortest_s
    assert told[1].reads > 1 << 20


def test_the_state_is_that_of_ps() -> None:
    rank = clean_environ(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_PORT=str(os.getpid()))
    with start(sys.executable, "-c", "while True: pass", environ=rank) as running:
        try:
            assert looked_at({running.pid: 0})[0]["state"] == "running"
            assert state(running.pid) == "R"
            running.send_signal(signal.SIGSTOP)
            until(lambda: state(running.pid) == "T", "it is stopped")
            assert looked_at({running.pid: 0})[0]["state"] == "stopped"
        finally:
            running.kill()


def test_ranks_forked_from_an_image_are_found_with_their_environment(tmp_path: Path) -> None:
    flags = ("--nproc", 2, "--preload", "json", "--virtual-local-rank")
    environ = {"RANK": "7", "ROOM": "x" * 4096}  # a rank's own can be shown in that of its image
    with launched(*flags, BUSY, directory=tmp_path, environ=environ) as launch:
        launch.read_until(2)
        pids = {rank: pid for rank, (pid, _) in ready(launch.output.decode()).items()}
        found = looked_at({pid: rank for rank, pid in pids.items()})
        assert {rank: one["pid"] for rank, one in found.items()} == pids
        assert len({one["launch"] for one in found.values()}) == 1
        for rank, pid in pids.items():
            shown = Path(f"/proc/{pid}/environ").read_text().split("\0")
            assert f"CUDA_VISIBLE_DEVICES={rank}" in shown
        launch.launcher.terminate()
        launch.status()


@pytest.mark.parametrize(("height", "first"), [(6, "rank"), (5, "!")])
def test_what_would_not_be_seen_on_the_screen_stands_first(height: int, first: str) -> None:
    ranks, note = [sample(rank) for rank in range(2)], culprits.Note(1, "stopped", "it is stopped")
    lines = rank_table.table(ranks, {ranks[0].launch: [note]}, 80, height)
    assert lines[1].split()[0] == first


@pytest.mark.parametrize(
    ("starter", "named", "wait_share", "is_said"),
    [("spawnlaunch", "", None, False), ("torchrun", "torchrun ", None, True),
     ("torchrun", "torchrun ", 0.1, False)],
)  # fmt: skip
def test_whose_launch_it_is_and_why_nobody_is_waited_for(
    starter: str, named: str, wait_share: float | None, is_said: bool
) -> None:
    name = "spawnlaunch-7-abc" if not named else "none node0 29500"
    ranks = [sample(rank, launch=name, starter=starter, wait_share=wait_share) for rank in range(2)]
    heading, *rest = rank_table.table(ranks, {}, 200)
    assert heading.startswith(f"{named}{name}: 2 of 4 ranks")
    assert any("torchrun starts no witness" in line for line in rest) == is_said


def test_a_command_with_line_breaks_and_bytes_is_one_printable_line() -> None:
    odd = sample(command="python -u -c a\nb\x1b[2J\udcff")
    assert rank_table.title([odd]) == r"spawnlaunch-7-abc: 1 of 4 ranks  -c a\nb\x1b[2J\xff"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "this is not a terminal; use --once"),
        (("--every", "0"), "'0' is not between 0.1"),
        (("--every", "x"), "'x' is not between 0.1"),
        (("--sort", "colour"), "colour"),
    ],
)
def test_what_cannot_be_shown_ends_with_status_2_and_a_line(
    words: tuple[str, ...], said: str
) -> None:
    done = run(*TOP, *words, stdin=None)
    assert done.returncode == 2
    assert done.stderr.startswith("spawnlaunch top: error: ")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_top_that_is_told_to_end_leaves_the_terminal_as_it_was() -> None:
    ours, theirs = os.openpty()
    before = termios.tcgetattr(theirs)
    top = start(*TOP, stdin=theirs, stdout=theirs, stderr=theirs)
    drawn = b""
    while b"q quit" not in drawn:
        drawn += os.read(ours, 1 << 16)
    assert termios.tcgetattr(theirs) != before
    top.terminate()
    assert top.wait(PATIENCE_S) == 128 + signal.SIGTERM
    assert termios.tcgetattr(theirs) == before
    os.close(theirs)
    os.close(ours)


def test_what_an_ended_worker_has_left_does_not_pass_for_the_worker_after_it(tmp_path: Path):
    contract = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": str(tmp_path)}
    left, worker = (
        start("sleep", 600, environ=clean_environ(**contract, TORCHELASTIC_RESTART_COUNT=attempt))
        for attempt in ("0", "1")
    )
    try:
        until(lambda: looked_at({worker.pid: 0}), "the worker is there")
        assert not looked_at({left.pid: 0})
    finally:
        for one in (left, worker):
            one.kill()
            one.wait()


def test_who_was_waited_for_is_not_named_when_nobody_answers_any_more():
    inquiry, culprit = waiting.Inquiry(at_once=True), culprits.Culprit(1, 30.0, 0.0, "", "")
    inquiry.verdicts = {"launch": culprits.Verdict({}, [culprit])}
    assert inquiry.findings()["launch"]
    inquiry.start_if_due([])
    assert inquiry.findings() == {}
