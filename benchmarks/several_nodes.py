"""Several nodes beside torchrun: to begin, to stop, and to begin again, on four namespaces.

    python -m benchmarks.several_nodes [--rounds 12] [--write]          as root

Nodes are network namespaces with a cable each, and one worker. torchrun has c10d, and for restarts
TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, without which they seldom succeed. Where it never notices (a
worker killed while the others compute, a cable that is cut) only the time of spawnlaunch is
measured. Then a hub of many launchers on loopback (benchmarks.multinode), and the memory of it and
of a launcher.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks import memory, multinode, report
from benchmarks.processes import ENOUGH_S, ROOT
from benchmarks.report import Goal, Section, Times, cell, goal, goal_of_value
from benchmarks.turns import turns
from spawnlaunch.base import machine
from tests.multinode.namespaces import Network, may_make_namespaces

ROUNDS = 12
HOSTS = "abcd"
LOST_AFTER_S = 10
MANY = 256  # launchers without workers
NO_OP = ("--no-python", "sh", "-c", "date +began:%s.%N; exec sleep 600")
REDUCE = (str(Path(__file__).with_name("reducing_worker.py")),)
OURS = (sys.executable, "-m", "spawnlaunch", "--quiet", "--failure-grace=1", "--nproc=1")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=1")
ENVIRON = {
    "GLOO_SOCKET_IFNAME": "eth",
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(ROOT),
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
}


class Launch:
    """A launch with one launcher on each node, and the output of their workers."""

    def __init__(self, network: Network, launcher: tuple[str, ...], directory: Path) -> None:
        self.network, self.launcher, self.directory = network, launcher, directory
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.began = time.time()

    def start(self, hosts: str, *words: str, nnodes: str = "4", **environ: str) -> None:
        """Start launchers on these nodes; an elastic launch waits one second for further nodes."""
        for host in hosts:
            rendezvous = (
                f"--nnodes={nnodes}", "--rdzv-backend=c10d", "--rdzv-id=7",
                f"--rdzv-endpoint={self.network.address('a')}:29400",
                f"--rdzv-conf=is_host={int(host == 'a')},last_call_timeout=1",
                f"--local-addr={self.network.address(host)}",
            )  # fmt: skip
            with (self.directory / host).open("wb") as output:
                self.processes[host] = subprocess.Popen(
                    (*self.network.within(host), *self.launcher, *rendezvous, *words),
                    env={**os.environ, **ENVIRON, **environ}, stdin=subprocess.DEVNULL,
                    stdout=output, stderr=output,
                )  # fmt: skip

    def times(self, host: str, word: str) -> list[float]:
        text = (self.directory / host).read_text(errors="replace")
        return [float(when) for when in re.findall(rf"{word}[: ]([\d.]+)", text)]

    def wait_for(self, hosts: str, word: str, count: int = 1) -> float:
        """Wait for so many of a word from each node; return the time of the last."""
        self.wait(lambda: all(len(self.times(host, word)) >= count for host in hosts), word)
        return max(self.times(host, word)[count - 1] for host in hosts)

    def wait(self, holds: Callable[[], bool], what: str) -> float:
        end = time.monotonic() + ENOUGH_S
        while not holds():
            if time.monotonic() > end:
                texts = [(self.directory / host).read_text()[-500:] for host in self.processes]
                raise RuntimeError(f"{self.launcher[2]}: never {what}: {texts}")
            time.sleep(0.002)
        return time.time()

    def workers(self, host: str) -> list[int]:
        return [pid for pid in self.network.processes(host) if self.is_worker(pid)]

    def is_worker(self, pid: int) -> bool:
        """Whether a process is a worker: no launcher with the same script, and no zombie."""
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False
        says = (b"exec sleep 600", b"sleep\x00600", b"reducing_worker.py")  # before and after exec
        return b"--rdzv-backend" not in line and any(each in line for each in says)

    def all_out(self, hosts: str) -> float:
        return self.wait(
            lambda: all(self.processes[host].poll() is not None for host in hosts), "out"
        )


def kill(pids: list[int]) -> float:
    assert pids, "there is no worker, and what is waited for would never come"
    at = time.time()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return at


@contextmanager
def launch(network: Network, launcher: tuple[str, ...]) -> Iterator[Launch]:
    with tempfile.TemporaryDirectory() as directory:
        one = Launch(network, launcher, Path(directory))
        try:
            yield one
        finally:
            for host in HOSTS:
                network.kill(host)
                network.mend(host)
            for process in one.processes.values():
                process.wait()
            reap_orphans()


def reap_orphans() -> None:
    """Reap a killed launcher's orphans: `quiet` then counts their CPU time as this program's."""
    end = time.monotonic() + ENOUGH_S
    with suppress(ChildProcessError):  # there are no more
        while time.monotonic() < end:
            if not os.waitpid(-1, os.WNOHANG)[0]:
                time.sleep(0.01)


# Each returns the seconds that its goal names.


def to_no_op(one: Launch) -> float:
    one.start(HOSTS, *NO_OP)
    return one.wait_for(HOSTS, "began") - one.began


def to_all_reduce(one: Launch) -> float:
    began = time.monotonic()
    one.start(HOSTS, *REDUCE)
    return one.wait_for(HOSTS, "reduced 0") - began


def out_after_kill(one: Launch) -> float:
    one.start(HOSTS, *REDUCE, REDUCE_ON="1")
    one.wait_for(HOSTS, "reduced 0")
    at = kill(one.workers("c"))
    return one.all_out(HOSTS) - at


def again_after_kill(one: Launch) -> float:
    one.start(HOSTS, "--max-restarts=3", *NO_OP)
    one.wait_for(HOSTS, "began")
    at = kill(one.workers("c"))
    return one.wait_for(HOSTS, "began", 2) - at


def out_after_hub(one: Launch) -> float:
    one.start(HOSTS, *REDUCE, REDUCE_ON="1")
    one.wait_for(HOSTS, "reduced 0")
    at = kill([one.processes["a"].pid])
    return one.all_out("bcd") - at


def stopped_while_computing(one: Launch) -> float:
    one.start(HOSTS, *NO_OP)
    one.wait_for(HOSTS, "began")
    at = kill(one.workers("c"))
    return one.wait(lambda: not any(map(one.workers, "abd")), "stopped") - at


def told_of_a_cut(one: Launch) -> float:
    one.start(HOSTS, f"--lost-after={LOST_AFTER_S}", *NO_OP)
    one.wait_for(HOSTS, "began")
    at = time.time()
    one.network.cut("c")
    return one.wait(lambda: not any(map(one.workers, HOSTS)), "stopped") - at


def joined_late(one: Launch) -> float:
    one.start("abc", *NO_OP, nnodes="3:4")
    one.wait_for("abc", "began")
    at = time.time()
    one.start("d", *NO_OP, nnodes="3:4")
    return max(one.wait_for("abc", "began", 2), one.wait_for("d", "began")) - at


BESIDE = {  # with the most that it may take, as a share of torchrun's time
    "launch to no-op workers on all nodes": (to_no_op, 0.15),
    "launch to the first all-reduce": (to_all_reduce, 0.60),
    "a worker killed in all-reduces, to the last launcher's end": (out_after_kill, 0.15),
    "a worker killed, to no-op workers again on all": (again_after_kill, 0.20),
    "node 0's launcher killed, to the others' end": (out_after_hub, 0.20),
}
ALONE = {  # with the most seconds that it may take
    "a worker killed while the others compute, to their end": (stopped_while_computing, 0.3),
    f"a cable cut, --lost-after {LOST_AFTER_S}, to the end on both sides": (told_of_a_cut, 12.0),
    "a late node under MIN:MAX, to no-op workers again on all": (joined_late, 1.5),
}


def measure(options: Namespace) -> Section:
    """Measure all, in turns with torchrun."""
    if not may_make_namespaces():
        raise SystemExit("several_nodes needs root and ip(8): its nodes are network namespaces")
    rivals = [(what, OURS) for what in (*BESIDE, *ALONE)] + [(what, TORCHRUN) for what in BESIDE]
    times: dict[tuple[str, tuple[str, ...]], list[float]] = {rival: [] for rival in rivals}
    machine.prctl(machine.PR_SET_CHILD_SUBREAPER, 1)
    network = Network(HOSTS)
    try:
        for what, launcher in turns(options.rounds, sorted(rivals)):
            with launch(network, launcher) as one:
                times[what, launcher].append({**BESIDE, **ALONE}[what][0](one))
    finally:
        network.remove()
    rows: list[list[str | Times]] = []
    goals: list[Goal] = []
    for what, (_, share) in BESIDE.items():
        ours, theirs = times[what, OURS], times[what, TORCHRUN]
        rows.append([what, cell(ours), cell(theirs)])
        goals.append(goal(f"{what}, of torchrun's time", ours, theirs, share))
    for what, (_, most_s) in ALONE.items():
        goals.append(goal_of_value(f"{what}, s", times[what, OURS], most_s))
    for what, values, unit, most in _many(options.rounds):
        found = goal_of_value(f"{what},{unit or ' s'}", values, most)
        goals.append(found._replace(is_ratio=bool(unit)))  # memory is as large on a busy machine
    return Section(
        "several_nodes",
        "Several nodes",
        f"""Four namespaces with a cable each, one worker on each, in s; rounds: {options.rounds}.
        torchrun has c10d, and a store of its own for each attempt. What torchrun does not do is in
        the goals alone; the {MANY} launchers are those of benchmarks.multinode.""",
        ["", "spawnlaunch", "torchrun"],
        rows,
        goals,
    )


def _many(rounds: int) -> list[tuple[str, list[float], str, float]]:
    """Measure a large hub and a launcher: a name, the rounds' values, unit and goal of each."""
    n = MANY
    seen = [multinode.a_life(n) for _ in range(rounds)]
    of_one = [memory.launcher_mib() for _ in range(rounds)]
    return [
        (
            f"{n} launchers, to the start at all",
            [one["all told their ranks"][0] for one in seen],
            "",
            1.0,
        ),
        (
            f"{n} launchers, a failure, to the stop at all",
            [one["all heard of a failure"][0] for one in seen],
            "",
            0.5,
        ),
        ("memory of a launcher, more than on one node", of_one, " MiB", 3.0),
        (
            f"memory of a hub of {n}, more than of one",
            [one["hub's memory, MiB"][0] for one in seen],
            " MiB",
            6.0,
        ),
    ]


if __name__ == "__main__":
    report.main("several_nodes", __doc__, measure, ROUNDS)
