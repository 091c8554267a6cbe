"""Ten thousand launches in the simulated machine, of one node and of several."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.launching import ROOT

PARTS = {
    "one node": ("--first", "2000", "--seeds", "7000"),  # test_machine plays those before
    "several": ("--first", "200", "--seeds", "1000", "--nodes", "6"),
}


@pytest.mark.full
def test_no_launch_of_ten_thousand_is_broken():
    running = {
        name: subprocess.Popen(
            [sys.executable, "-m", "tests.machine", *words],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for name, words in PARTS.items()
    }  # fmt: skip
    told = {name: process.communicate()[0] for name, process in running.items()}
    assert all(process.returncode == 0 for process in running.values()), "\n".join(told.values())
