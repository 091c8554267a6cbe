"""What may come of any input: a result or one plain line, within bounds of memory and length."""

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.launching import clean_environ
from tests.support.patience import PATIENCE_S

MEMORY_BYTES = 1 << 30  # in which the launcher takes a hundredth
ERROR_BYTES = 1 << 16
RANK_BYTES = 1 << 14  # of an explanation, for each worker


@contextmanager
def bounded() -> Iterator[None]:
    """What has more memory raises MemoryError."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (_data_bytes() + MEMORY_BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _data_bytes() -> int:
    """The memory of this process that RLIMIT_DATA counts (VmData in proc_pid_status(5))."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmData"))


def plain_line(message: str, most: int = ERROR_BYTES) -> None:
    """Assert that it is one line, not too long, of which a terminal takes nothing for a command."""
    assert message
    assert len(message) <= most, len(message)
    assert message.isprintable(), message


def explained(words: Sequence[str], environ: Mapping[str, str]) -> None:
    """Run the launcher with --explain: it explains, or says one error, and not much of either."""
    flags = [] if any(word.startswith("--explain") for word in words) else ["--explain"]
    command = [sys.executable, "-m", "spawnlaunch", *flags, *words]
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(
            [os.fsencode(word) for word in command],
            env={os.fsencode(k): os.fsencode(v) for k, v in clean_environ(**environ).items()},
            cwd=directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE_S,
            preexec_fn=_limit,
            check=False,
        )
        assert not os.listdir(directory), "it left files"
    said = done.stderr.decode()
    assert done.returncode in (0, 2), (done.returncode, said[-4000:])
    assert "Traceback" not in said
    assert len(done.stderr) <= ERROR_BYTES
    assert all(line.startswith("spawnlaunch: ") for line in said.splitlines()), said
    if done.returncode == 2:
        assert done.stdout == b""
        assert said.count("\n") == 1, said
        assert said.startswith("spawnlaunch: error: "), said
    ranks = done.stdout.count(b"\nrank ") + done.stdout.count(b'"local_rank"') + 1
    given = sum(map(len, (*words, *environ.values())))  # and shown, for each rank as well
    assert len(done.stdout) <= ERROR_BYTES + (RANK_BYTES + 8 * given) * ranks


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
