"""A sample: a fresh process that is bound as the arm says, before it has touched anything.

The process of a rank has imported torch and the workloads, and done nothing else. For every sample
it forks, and the child is bound by the same two calls as a worker of the launcher, before it
starts a thread, allocates an array or makes a DataLoader worker. So masks, memory and threads are
what they would be in a worker, and a sample costs a fork in place of a start of Python and an
import. One process that is bound again and again would keep the memory and the threads of the arm
before.

A sample of the user's own command is a child that becomes the command. Measured is the wall time
from the start, which all ranks make together, to its end; or a number that the command prints
itself, as a JSON line such as {"tokens_per_s": 812.5}.

The only other thread of a rank's process is that of rank 0's store, which no child uses.
"""

import contextlib
import json
import math
import os
import select
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, NamedTuple, NoReturn

from spawnlaunch.binding import apply
from spawnlaunch.binding.apply import Binding
from spawnlaunch.run import kernel
from spawnlaunch.run.preload import libraries

LOOK_AGAIN_S = 1.0  # whether another rank has failed; rarely, for looking disturbs
TAIL_CHARS = 4000  # of what went wrong
STOPPED = "another rank failed"
POLL_S = 0.02  # where there are no pidfds

Stopped = Callable[[], bool]
Environ = Mapping[str, str]


class FailedError(Exception):
    """A sample could not be taken on some rank; the message says why."""


class Sample(NamedTuple):
    """What a child measured, or why it did not."""

    values: dict[str, Any]  # numbers above 0
    error: str = ""


def fork(binding: Binding, run: Callable[[], NoReturn]) -> int:
    """A child with this binding that does `run`; the result is its pid."""
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            kernel.die_with_parent(parent)
            os.setpgid(0, 0)
            _bind(binding)
            run()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return pid


def _bind(binding: Binding) -> None:
    refusal = apply.pin(binding)
    if refusal:
        raise OSError(refusal)  # a sample that is bound otherwise would be a lie
    apply.place_memory(binding)


def of_workload(
    binding: Binding, measure: Callable[[], dict[str, Any]], stopped: Stopped
) -> Sample:
    """What a child with this binding measures, or finds out; it goes through JSON."""
    reading, writing = os.pipe()

    def run() -> NoReturn:
        os.environ["OMP_NUM_THREADS"] = str(binding.threads)
        libraries.set_threads(binding.threads)
        try:
            said = json.dumps({"values": measure()})
        except Exception:
            said = json.dumps({"error": traceback.format_exc()[-TAIL_CHARS:]})
        os.write(writing, said.encode())  # less than a pipe holds: nobody reads yet
        os._exit(0)

    pid = fork(binding, run)
    os.close(writing)
    status = wait(pid, stopped)
    if status is None:
        os.close(reading)
        return Sample({}, STOPPED)
    with open(reading, "rb") as pipe:
        said = pipe.read()
    if not said:
        return Sample({}, f"the process of the sample ended with {describe(status)}")
    return Sample(**{"values": {}, **json.loads(said)})


def command_environment(binding: Binding, port: int, environ: Environ) -> dict[str, str]:
    """That of the rank, with a port of the sample's own: the bench listens on the rank's."""
    own = {"MASTER_PORT": port, "OMP_NUM_THREADS": binding.threads}
    own |= {"TORCHELASTIC_USE_AGENT_STORE": False}
    return {**environ, **{name: str(value) for name, value in own.items()}}


def of_command(
    words: Sequence[str],
    binding: Binding,
    environ: Environ,
    metric: str | None,
    stopped: Stopped,
) -> Sample:
    """Run the command to its end. A rank that prints no metric has no value."""
    with tempfile.TemporaryFile() as output:
        began = time.perf_counter()
        pid = fork(binding, lambda: _become(words, environ, output))
        status = wait(pid, stopped)
        took_s = time.perf_counter() - began
        output.seek(0)
        said = output.read().decode(errors="replace")
    if status is None:
        return Sample({}, STOPPED)
    if status != 0:
        return Sample({}, f"{words[0]} ended with {describe(status)}:\n{said[-TAIL_CHARS:]}")
    if metric is None:
        return Sample({"": took_s})
    value = last_number(said, metric)
    return Sample({} if value is None else {"": value})


def _become(words: Sequence[str], environ: Environ, output: IO[bytes]) -> NoReturn:
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (output.fileno(), 1), (output.fileno(), 2)):
        os.dup2(source, target)
    os.execvpe(words[0], list(words), environ)


def last_number(said: str, key: str) -> float | None:
    """The number with this key in the last JSON line that has it; None: there is none."""
    for line in reversed(said.splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        value = found.get(key) if isinstance(found, dict) else None
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    return None


def wait(pid: int, stopped: Stopped) -> int | None:
    """The exit status of a child, negative for a signal; None: it was killed as `stopped` said."""
    pidfd, killed = kernel.open_pidfd(pid), False
    try:
        while True:
            if pidfd is None:
                time.sleep(POLL_S)
            else:
                select.select([pidfd], [], [], LOOK_AGAIN_S)
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return None if killed else os.waitstatus_to_exitcode(status)
            if stopped():
                killed = True
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
    finally:
        if pidfd is not None:
            os.close(pidfd)


def describe(status: int) -> str:
    """An exit status in words."""
    return f"status {status}" if status >= 0 else signal.Signals(-status).name
