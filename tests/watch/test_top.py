"""spawnlaunch.top finds ranks whoever started them, and its figures are those of /proc and ps."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spawnlaunch.rollcall import culprits
from spawnlaunch.watch import notes, table, waiting
from spawnlaunch.watch.devices import Meter
from spawnlaunch.watch.sample import Sampler
from tests.support.launching import WORKERS, clean_environ, run, start
from tests.support.processes import until
from tests.support.required import require_programs
from tests.support.watching import launched
from tests.watch.ranks import TOP, looked_at, ready
from tests.watch.samples import sample

require_programs("ps", package="procps")

BUSY = WORKERS / "busy.py"
PAGE = os.sysconf("SC_PAGE_SIZE")


class Two:
    """Two ranks that have worked and now wait."""

    def __init__(self, pids: dict[int, tuple[int, int]]) -> None:
        self.pids = pids
        self.samples = looked_at({pid: rank for rank, (pid, _) in pids.items()})

    def of(self, name: str) -> dict[int, Any]:
        return {rank: one[name] for rank, one in self.samples.items()}

    def told(self, tell: Callable[[int, int], Any]) -> dict[int, Any]:
        return {rank: tell(pid, child) for rank, (pid, child) in self.pids.items()}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    directory = tmp_path_factory.mktemp("two")
    with launched("--nproc", 2, BUSY, directory=directory) as launch:
        launch.read_until(2)
        # The guard tells of output when a launch has lasted for a second.
        until(lambda: _tells(launch.guard), "the guard tells who said something when")
        yield Two(ready(launch.output.decode()))
        launch.launcher.terminate()
        launch.status()


def _tells(guard: int) -> bool:
    files = Path(f"/proc/{guard}/fd").iterdir()
    return any("spawnlaunch-said" in os.readlink(each) for each in files)


def ps(what: str, *pids: int) -> int:
    done = run("ps", "-o", f"{what}=", "-p", ",".join(map(str, pids)), check=True)
    return sum(map(int, done.stdout.split()))


def state(pid: int) -> str:
    return run("ps", "-o", "state=", "-p", pid).stdout.strip()


def proc(pid: int, file: str, name: str) -> str:
    lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    return next(line.split(":")[1].strip() for line in lines if line.startswith(f"{name}:"))


def test_the_ranks_are_of_one_launch(two: Two) -> None:
    assert set(two.samples) == {0, 1}
    assert len(set(two.of("launch").values())) == 1
    assert set(two.of("world_size").values()) == {2}


def test_memory_is_that_of_ps(two: Two) -> None:
    assert two.of("memory") == two.told(lambda pid, _: ps("rss", pid) * 1024)
    assert two.of("memory_below") == two.told(lambda _, child: ps("rss", child) * 1024)


def test_the_peak_is_that_of_proc_and_not_what_is_there_now(two: Two) -> None:
    kilobytes = two.told(lambda pid, _: proc(pid, "status", "VmHWM").removesuffix("kB"))
    assert two.of("peak") == {rank: int(text) * 1024 for rank, text in kilobytes.items()}
    assert all(one["peak"] > one["memory"] + (90 << 20) for one in two.samples.values())


def test_threads_are_those_of_ps(two: Two) -> None:
    assert two.of("threads") == two.told(lambda pid, _: ps("nlwp", pid)) == {0: 4, 1: 4}


def test_cpu_time_is_that_of_the_process_and_of_what_it_started(two: Two) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    for rank, pids in two.pids.items():
        texts = [Path(f"/proc/{pid}/stat").read_text() for pid in pids]
        stats = (text.rpartition(") ")[2].split() for text in texts)
        used_s = sum(int(n) for stat in stats for n in stat[11:15]) / ticks
        assert two.samples[rank]["cpu_seconds"] == pytest.approx(used_s, abs=0.05)
        assert used_s >= 1.0  # half a second each


def test_who_waits_uses_no_cpu(two: Two) -> None:
    assert all(one["cpu"] < 0.1 for one in two.samples.values())
    assert set(two.of("state").values()) == {"sleeping"}


def test_the_mask_is_that_of_proc(two: Two) -> None:
    assert two.of("cpus") == two.told(lambda pid, _: proc(pid, "status", "Cpus_allowed_list"))
    assert set(two.of("elsewhere").values()) == {""}


def test_processes_below_are_counted(two: Two) -> None:
    assert two.of("processes") == {0: 1, 1: 1}


def test_the_last_line_has_an_age(two: Two) -> None:
    assert all(0 <= one["quiet_s"] < 300 for one in two.samples.values())


def counters(pid: int) -> tuple[float, int, int]:
    """CPU seconds, and bytes that were read and written, of a process that has started nothing."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    used_s = (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
    return used_s, int(proc(pid, "io", "rchar")), int(proc(pid, "io", "wchar"))


def test_use_reads_and_writes_are_per_second(tmp_path: Path) -> None:
    """What lies between two looks is more than what we see between them, and less than around."""
    loop = tmp_path / "loop.py"
    loop.write_text(
        "import os\nzeros = open('/dev/zero', 'rb', buffering=0)\n"
        "null = open('/dev/null', 'wb', buffering=0)\nprint('ready', flush=True)\n"
        "while True:\n    null.write(zeros.read(1 << 16))\n"
    )
    with launched("--nproc", 1, loop, directory=tmp_path) as launch:
        launch.read_until(1)
        (pid,) = launch.workers
        sampler = Sampler(Meter(), lambda rank: rank.pid == pid)
        times, seen, told = [], [], []
        for _ in range(2):
            times.append(time.monotonic())
            seen.append(counters(pid))
            told += sampler.sample()
            seen.append(counters(pid))
            times.append(time.monotonic())
            time.sleep(0.5)
        launch.launcher.terminate()
        launch.status()
    longest_s, shortest_s = times[3] - times[0], times[2] - times[1]
    figures = (told[1].cpu, told[1].reads, told[1].writes)
    for i, figure in enumerate(figures):
        ticks = 0.02 if i == 0 else 0  # the clock's
        assert (seen[2][i] - seen[1][i] - ticks) / longest_s <= figure
        assert figure <= (seen[3][i] - seen[0][i] + ticks) / shortest_s
    assert told[1].reads > 1 << 20


def test_the_time_of_the_last_line_is_between_its_writing_and_its_reading(tmp_path: Path) -> None:
    script = tmp_path / "says.py"
    script.write_text(
        "import time\ntime.sleep(2)\n"
        "print('ready', time.monotonic(), flush=True)\ntime.sleep(3600)\n"
    )
    with launched("--nproc", 2, script, directory=tmp_path) as launch:
        launch.read_until(2)
        read_at = time.monotonic()
        written = [float(line.split()[1]) for line in launch.output.splitlines()]
        found = looked_at(dict.fromkeys(launch.workers, 0))
        assert len(found) == 2
        for one in found.values():
            assert min(written) - 0.001 <= one["said_at"] <= read_at + 0.001
        launch.launcher.terminate()
        launch.status()


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


def test_a_thread_elsewhere_is_marked(tmp_path: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU: a thread can be nowhere else")
    script = tmp_path / "astray.py"
    script.write_text(
        "import os, threading, time\n"
        "here = sorted(os.sched_getaffinity(0))\n"
        "def astray():\n    os.sched_setaffinity(0, here[-1:])\n    print('ready', flush=True)\n"
        "    while True: sum(range(1000))\n"
        "threading.Thread(target=astray, daemon=True).start()\n"
        "os.sched_setaffinity(0, here[:1])\ntime.sleep(3600)\n"
    )
    with launched("--nproc", 1, script, directory=tmp_path) as launch:
        launch.read_until(1)
        (pid,) = launch.workers
        last = str(max(os.sched_getaffinity(0)))
        until(lambda: looked_at({pid: 0})[0]["elsewhere"] == last, "the thread is seen there")
        launch.launcher.terminate()
        launch.status()


def test_ranks_forked_from_an_image_are_found_with_their_environment(tmp_path: Path) -> None:
    record = tmp_path / "record"
    flags = ("--nproc", 2, "--preload", "json", "--virtual-local-rank", "--record", record)
    with launched(*flags, BUSY, directory=tmp_path, environ={"RANK": "7"}) as launch:
        launch.read_until(2)
        pids = {rank: pid for rank, (pid, _) in ready(launch.output.decode()).items()}
        found = looked_at({pid: rank for rank, pid in pids.items()})
        assert {rank: one["pid"] for rank, one in found.items()} == pids
        assert len({one["launch"] for one in found.values()}) == 1
        for rank, pid in pids.items():
            shown = Path(f"/proc/{pid}/environ").read_text().split("\0")
            assert f"CUDA_VISIBLE_DEVICES={rank}" in shown
        until(lambda: _samples(record), "the recorder has found them")
        launch.launcher.terminate()
        launch.status()


def _samples(record: Path) -> list[dict[str, Any]]:
    lines = [line for file in record.glob("*.jsonl") for line in file.read_text().split("\n")[:-1]]
    return [
        one for one in map(json.loads, lines) if one["kind"] == "sample" and one["ranks"] == [0, 1]
    ]


@pytest.mark.full
def test_ranks_of_torchrun_are_found(tmp_path: Path) -> None:
    words = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2)
    torchrun = start(*words, BUSY, stderr=(tmp_path / "stderr").open("w"))
    try:
        lines = [torchrun.stdout.readline() for _ in range(2)]
        by_rank = [(rank, pid) for rank, (pid, _) in ready("".join(lines)).items()]
        found = looked_at({pid: rank for rank, pid in by_rank})
        assert {rank: one["pid"] for rank, one in found.items()} == dict(by_rank)
        assert len({one["launch"] for one in found.values()}) == 1
    finally:
        torchrun.terminate()
        torchrun.wait()


def test_a_rank_in_task_mode_is_found(tmp_path: Path) -> None:
    from tests.support.launching import LAUNCHER, SLURM_TASK

    environ = clean_environ(**SLURM_TASK)
    task = start(*LAUNCHER, BUSY, environ=environ, stderr=(tmp_path / "e").open("w"))
    try:
        pids = ready(task.stdout.readline())
        assert pids == {2: (task.pid, pids[2][1])}
        found = looked_at({task.pid: 2})
        assert found[2]["world_size"] == 3
    finally:
        os.kill(pids[2][1], 9)
        task.kill()
        task.wait()


def test_the_table_has_a_line_for_each_rank(two: Two) -> None:
    text = run(*TOP, "--once", check=True).stdout
    rows = [line.split() for line in text.splitlines()]
    for rank, (pid, _) in two.pids.items():
        assert [str(rank), str(pid)] in [row[:2] for row in rows]


@pytest.mark.parametrize(("height", "first"), [(6, "rank"), (5, "!")])
def test_what_would_not_be_seen_on_the_screen_stands_first(height: int, first: str) -> None:
    ranks, note = [sample(rank) for rank in range(2)], notes.Note(1, "stopped", "it is stopped")
    lines = table.table(ranks, {ranks[0].launch: [note]}, 80, height)
    assert lines[1].split()[0] == first


def test_a_command_with_line_breaks_and_bytes_is_one_printable_line() -> None:
    odd = sample(command="python -u -c a\nb\x1b[2J\udcff")
    assert table.title([odd]) == r"spawnlaunch-7-abc: 1 of 4 ranks  -c a\nb\x1b[2J\xff"


def test_without_a_terminal_there_is_a_line_to_type() -> None:
    done = run(*TOP, stdin=None)
    assert done.returncode == 2
    assert done.stderr == "spawnlaunch.top: error: this is no terminal; type --once\n"


@pytest.mark.parametrize("program", ["top", "report", "check", "bench"])
def test_every_program_has_help(program: str) -> None:
    done = run(sys.executable, "-m", f"spawnlaunch.{program}", "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: python -m spawnlaunch.{program} ")


@pytest.mark.parametrize("words", [("--every", "0"), ("--every", "x"), ("--sort", "colour")])
def test_a_flag_with_a_wrong_value_ends_with_status_2(words: tuple[str, ...]) -> None:
    done = run(*TOP, *words)
    assert done.returncode == 2
    assert words[1] in done.stderr
    assert "Traceback" not in done.stderr


def test_a_time_that_is_no_number_is_refused_in_words() -> None:
    done = run(*TOP, "--every", "x")
    assert "'x' is not between 0.1" in done.stderr


@pytest.mark.full
def test_the_loop_tells_its_step(tmp_path: Path) -> None:
    flags = ("--task", "language", "--steps", 100000, "--log-every", 5, "--out", tmp_path / "out")
    with launched("--nproc", 2, "--", *flags, directory=tmp_path) as launch:
        found: dict[int, dict[str, Any]] = {}

        def tells() -> bool:
            found.update(looked_at(dict.fromkeys(launch.workers, 0)))
            told = [one["progress"] for one in found.values()]
            return len(told) == 2 and all(one and one["loss"] for one in told)

        until(tells, "both ranks tell a loss")
        metrics = tmp_path / "out" / "metrics.jsonl"

        def logged(loss: float) -> list[dict[str, Any]]:
            lines = map(json.loads, metrics.read_text().split("\n")[:-1])
            return [line for line in lines if line.get("loss") == loss]

        for one in found.values():
            progress = one["progress"]
            assert progress["steps"] == 100000
            assert progress["compute_s"] > 0
            loss = progress["loss"]
            until(partial(logged, loss), "the loop has logged what the rank tells")
            at = logged(loss)[0]
            if one["rank"] == 0:  # which writes the log; others' clocks tell another rate
                assert progress["rate"] == at["samples_per_second"]
            assert at["step"] <= progress["step"] < at["step"] + 1000
        launch.launcher.kill()
        launch.status()


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
    waits, culprit = waiting.Inquiry(at_once=True), culprits.Culprit(1, 30.0, 0.0, "", "")
    waits.verdicts = {"launch": culprits.Verdict({}, [culprit])}
    assert waits.findings()["launch"]
    waits.ask([])
    assert waits.findings() == {}
