"""A sample of the user's own command: every rank starts it in its seat, as the launcher would.

Measured is the wall time from the start, which all ranks make together, to the end of the rank's
process; or a number that the command prints itself, as a JSON line such as {"tokens_per_s": 812.5}.
"""

import json
import math
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import IO, NoReturn

from spawnlaunch.bench.sample import STOPPED, TAIL_CHARS, Sample, Stopped, describe, fork, wait
from spawnlaunch.binding.plan import Binding

Environ = Mapping[str, str]


def environment(seat: Binding, port: int, environ: Environ) -> dict[str, str]:
    """That of the rank, with a port of the sample's own: the bench listens on the rank's."""
    own = {"MASTER_PORT": port, "OMP_NUM_THREADS": seat.threads}
    own |= {"TORCHELASTIC_USE_AGENT_STORE": False}
    return {**environ, **{name: str(value) for name, value in own.items()}}


def run(
    words: Sequence[str],
    seat: Binding,
    environ: Environ,
    metric: str | None,
    stopped: Stopped,
) -> Sample:
    """Run the command to its end. A rank that prints no metric has no value."""
    with tempfile.TemporaryFile() as output:
        began = time.perf_counter()
        pid = fork(seat, lambda: _become(words, environ, output))
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
