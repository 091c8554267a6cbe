"""The guard raises its own soft limit on open files where many workers need it, and theirs not."""

import resource
from pathlib import Path

import pytest

from tests.support.watching import launched

SOFT = 64
LIMITS = "import os, resource\nos.write(1, b'soft %d\\n' % resource.getrlimit({})[0])\n"


@pytest.mark.parametrize("preload", [(), ("--preload", "json"), ("--redirects", 2, "--tee", 1)])
def test_workers_have_the_limit_that_the_launcher_was_given(preload, tmp_path: Path):
    script = tmp_path / "limits.py"
    script.write_text(LIMITS.format(int(resource.RLIMIT_NOFILE)))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    flags = (*preload, "--log-dir", tmp_path) if "--tee" in preload else preload
    with launched(
        "--nproc", 25, *flags, script, directory=tmp_path,
        preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (SOFT, hard)),
    ) as one:  # fmt: skip
        assert one.status() == 0, one.stderr
        assert one.output.splitlines() == [b"soft %d" % SOFT] * 25
