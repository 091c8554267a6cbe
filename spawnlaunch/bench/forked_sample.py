"""Take a sample in a fresh process, which is bound as the arm says before it does any work.

The process of a rank has imported torch and the workloads, and done nothing else. For every sample
it forks, and the child is bound by the same two calls as a worker of the launcher, before it
starts a thread, allocates an array or makes a DataLoader worker. So masks, memory and threads are
what they would be in a worker, and a sample costs a fork in place of a start of Python and an
import. One process that is bound again and again would keep the memory and the threads of an
earlier arm.

A sample of the user's own command is a child that becomes the command. Its value is the wall time
from the start, which all ranks make together, to its end; or a number that the command prints
itself, as a JSON line such as {"tokens_per_s": 812.5}.

The only other thread of a rank's process is that of rank 0's store, which no child uses.
"""

import contextlib
import json
import math
import os
import resource
import select
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from spawnlaunch.base import cpuset, machine
from spawnlaunch.bench import effort
from spawnlaunch.bench.effort import Effort, Watch
from spawnlaunch.binding import apply
from spawnlaunch.node import proc, sysfs
from spawnlaunch.outcome import failures

RECHECK_S = 1.0  # between checks whether another rank has failed, which disturb the sample
TAIL_CHARS = 4000  # of an error
STOPPED = "another rank failed"
POLL_S = 0.02  # where there are no pidfds
ENDING = (signal.SIGINT, signal.SIGTERM)  # that ask rank 0 to end with the samples so far

Stopped = Callable[[], bool]
Environ = Mapping[str, str]


class FailedError(Exception):
    """A sample could not be taken on some rank; the message says why."""


class Sample(NamedTuple):
    """The measurements of a child, or the reason why there are none."""

    values: dict[str, Any]  # numbers above 0
    error: str = ""
    effort: Effort | None = None  # None: it was not measured
    steps: dict[str, list[float]] | None = None  # seconds of each step, by series


class Ended(NamedTuple):
    """The exit of a child: its status and what it used."""

    status: int  # negative for a signal
    schedstat: str  # of its first thread
    used: resource.struct_rusage  # of all of its threads, and of its children


def fork(binding: apply.Binding, run: Callable[[], NoReturn]) -> int:
    """Start a child with this binding that calls `run`; return its pid."""
    parent = os.getpid()
    # os.fork swallows what a handler raises while it calls the hooks of logging and others
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    pid = os.fork()
    if pid == 0:
        try:
            machine.die_with_parent(parent)
            os.setpgid(0, 0)
            for signum in ENDING:
                signal.signal(signum, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            if refusal := apply.pin(binding):
                raise OSError(refusal)  # a sample that is bound otherwise would be a lie
            apply.place_memory(binding)
            run()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return pid


def of_workload(
    binding: apply.Binding,
    measure: Callable[[Watch], dict[str, Any]],
    stopped: Stopped,
    allowed: cpuset.CpuSet = cpuset.EMPTY,
) -> Sample:
    """Return the result of `measure` in a child with this binding; it passes through JSON.

    `allowed` are the CPUs that ranks of this node may use.
    """
    reading, writing = socket.socketpair()  # a pipe may hold one page, and has no reader yet

    def run() -> NoReturn:
        os.environ["OMP_NUM_THREADS"] = str(binding.threads)
        if torch := sys.modules.get("torch"):
            torch.set_num_threads(binding.threads)
        watch = Watch(binding.cpus or allowed, allowed)
        try:
            values = measure(watch)
            steps_of_windows = [[float(f"{each:.4g}") for each in its] for its in watch.steps]
            steps = dict(zip(values, steps_of_windows, strict=False))
            result = {"values": values, "effort": effort.as_json(watch.effort), "steps": steps}
            text = json.dumps(result)
        except Exception:
            text = json.dumps({"error": traceback.format_exc()[-TAIL_CHARS:]})
        writing.sendall(text.encode())
        os._exit(0)

    pid = fork(binding, run)
    writing.close()
    with reading:
        ended = wait(pid, stopped)
        if ended is None:
            return Sample({}, STOPPED)
        text = b""
        with contextlib.suppress(BlockingIOError):  # a process of its own may hold the other end
            text = reading.recv(1 << 20, socket.MSG_DONTWAIT)  # far more than is sent
    if not text:
        return Sample({}, f"the process of the sample {failures.end_in_words(ended.status)}")
    result = json.loads(text)
    if "error" in result:
        return Sample({}, result["error"])
    return Sample(result["values"], "", effort.read(result["effort"]), result["steps"])


def of_command(
    words: Sequence[str],
    binding: apply.Binding,
    environ: Environ,
    metric: str | None,
    stopped: Stopped,
    allowed: cpuset.CpuSet = cpuset.EMPTY,
) -> Sample:
    """Run the command to its end. A rank that prints no metric has no value."""
    before = effort.busy_and_stolen_s(allowed)

    def become() -> NoReturn:
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (output.fileno(), 1), (output.fileno(), 2)):
            os.dup2(source, target)
        os.execvpe(words[0], list(words), environ)

    with tempfile.TemporaryFile() as output:
        began = time.perf_counter()
        pid = fork(binding, become)
        ended = wait(pid, stopped)
        took_s = time.perf_counter() - began
        output.seek(0)
        text = output.read().decode(errors="replace")
    if ended is None:
        return Sample({}, STOPPED)
    if ended.status != 0:
        ending = failures.end_in_words(ended.status)
        return Sample({}, f"{words[0]} {ending}:\n{text[-TAIL_CHARS:]}")
    after = effort.busy_and_stolen_s(allowed)
    cost = effort.of_command(took_s, ended.schedstat, ended.used, before, after)
    value = took_s if metric is None else last_number(text, metric)
    return Sample({} if value is None else {"": value}, "", cost)


def last_number(text: str, key: str) -> float | None:
    """The number with this key in the last JSON line that has it; None: there is none.

    A launcher may have put the rank in front of the line.
    """
    for line in reversed(text.splitlines()):
        try:
            fields = json.loads(line[line.find("{") :])
        except ValueError:
            continue
        value = fields.get(key) if isinstance(fields, dict) else None
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    return None


def _kill_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def wait(pid: int, stopped: Stopped) -> Ended | None:
    """Wait for a child and return its exit; None if it was killed because of `stopped`."""
    pidfd, killed = machine.open_pidfd(pid), False
    try:
        while True:
            if pidfd is None:
                time.sleep(POLL_S)
            else:
                select.select([pidfd], [], [], RECHECK_S)
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                schedstat = sysfs.text(f"/proc/{pid}/schedstat") or ""  # gone after wait4
                _kill_group(pid)  # its orphans must not disturb the next sample
                _, status, used = os.wait4(pid, 0)
                return None if killed else Ended(os.waitstatus_to_exitcode(status), schedstat, used)
            if stopped():
                killed = True
                process = proc.look(pid)
                # A launcher starts its workers in sessions of their own.
                for each in proc.below([process] if process else []):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(each.pid, signal.SIGKILL)
                _kill_group(pid)
    finally:
        if pidfd is not None:
            os.close(pidfd)
