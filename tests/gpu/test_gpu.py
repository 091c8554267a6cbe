"""What holds of `make gpu` on every machine, with a device or without."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu import all_checks
from tests.gpu.check import Check, NotRun, run
from tests.gpu.machine import ROOT, Machine


def gpu(*flags: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "tests.gpu", *flags]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True)


@pytest.fixture
def machine() -> Machine:
    """As if its PyTorch had seen no device."""
    return Machine(sys.executable, {"packages": {"torch": "2"}, "devices": []}, "", 600.0)


def test_what_a_machine_lacks_is_not_run_and_not_passed(machine: Machine) -> None:
    outcomes = [run(each, machine) for each in all_checks() if "gpu" in each.needs]
    assert {each.result for each in outcomes} == {"not run"}
    assert all("needs gpu" in each.why for each in outcomes)


def test_a_check_ends_as_what_it_did_says(machine: Machine) -> None:
    def passes(_: Machine) -> None:
        pass

    def fails(_: Machine) -> None:
        assert 1 == 2, "one is not two"

    def breaks(_: Machine) -> None:
        raise KeyError("x")

    def lacks(_: Machine) -> None:
        raise NotRun("no such adapter")

    shows = (passes, fails, breaks, lacks)
    ends = [run(Check(show.__name__, (), show), machine) for show in shows]
    assert [end.result for end in ends] == ["passed", "failed", "failed", "not run"]
    assert ends[1].why.startswith("one is not two")
    assert "KeyError" in ends[2].why


def test_a_word_that_no_check_has_is_refused() -> None:
    ended = gpu("--only", "nothing-of-this-kind")
    assert ended.returncode == 2
    assert "'nothing-of-this-kind'" in ended.stderr


@pytest.mark.full
def test_all_that_can_run_here_passes_and_the_rest_is_named(tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    ended = gpu("--json", str(file), "--limit", "3600")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    outcomes = json.loads(file.read_text())["checks"]
    assert [each["name"] for each in outcomes] == [each.name for each in all_checks()]
    not_run = {each["name"] for each in outcomes if each["result"] == "not run"}
    passed = {each["name"] for each in outcomes if each["result"] == "passed"}
    assert passed | not_run == {each["name"] for each in outcomes}
    assert "the_loop_learns_on_the_cpu" in passed
    assert all(f"  {name}" in ended.stdout for name in not_run)
    assert f"{len(passed)} passed, 0 failed, {len(not_run)} did not run" in ended.stdout
