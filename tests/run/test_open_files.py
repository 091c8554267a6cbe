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


def test_one_worker_alone_cannot_be_fewer(tmp_path: Path):
    with launched(
        "--nproc", 1, "--no-python", "true", directory=tmp_path,
        preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8)),
    ) as one:  # fmt: skip
        assert one.status() == 2, one.stderr
        assert "one worker needs" in one.stderr
        assert "--nproc" not in one.stderr
