"""What tests of this room share."""

import sys

import pytest


@pytest.fixture
def typed_as_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that are to be typed begin with `python launcher`, as if this process were one."""
    monkeypatch.setattr(sys, "orig_argv", ["python", "launcher", "x"])
    monkeypatch.setattr(sys, "argv", ["launcher", "x"])
