"""The guard raises its own soft limit on open files where many workers need it, and theirs not."""

import resource
from pathlib import Path

import pytest

from tests.support.matrix import mostly_full
from tests.support.watching import launched

SOFT = 64
LIMITS = "import os, resource\nos.write(1, b'soft %d\\n' % resource.getrlimit({})[0])\n"


FLAGS = mostly_full(["--redirects 2 --tee 1", "--preload json", ""])


@pytest.mark.parametrize("flags", FLAGS)
def test_workers_have_the_limit_that_the_launcher_was_given(flags: str, tmp_path: Path):
    script = tmp_path / "limits.py"
    script.write_text(LIMITS.format(int(resource.RLIMIT_NOFILE)))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    place = ("--log-dir", tmp_path) if "--tee" in flags else ()
    with launched(
        "--nproc", 20, *flags.split(), *place, script, directory=tmp_path,
        preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (SOFT, hard)),
    ) as one:  # fmt: skip
        assert one.status() == 0, one.stderr
        assert one.output.splitlines() == [b"soft %d" % SOFT] * 20


@pytest.mark.full
def test_the_limit_is_raised_wherever_the_launcher_counts_on_it(tmp_path: Path):
    script = tmp_path / "of_the_guard.py"
    script.write_text(
        "import os, resource\n"
        "soft, hard = resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE)\n"
        "os.write(1, b'raised %d\\n' % (soft == hard))\n"
    )
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = 66  # eight workers, whose streams are shown and kept, need 8 * 5 + 32
    with launched(
        *("--nproc", 8, "--prefix=never", "--tee", 3, "--log-dir", tmp_path, script),
        directory=tmp_path,
        preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)),
    ) as one:  # fmt: skip
        assert one.status() == 0, one.stderr
        assert one.output.splitlines() == [b"raised 1"] * 8


def test_one_worker_alone_cannot_be_fewer(tmp_path: Path):
    with launched(
        "--nproc", 1, "--no-python", "true", directory=tmp_path,
        preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8)),
    ) as one:  # fmt: skip
        assert one.status() == 2, one.stderr
        assert "one worker needs" in one.stderr
        assert "--nproc" not in one.stderr
