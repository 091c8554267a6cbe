"""What a check is, and how it ends."""

import time
import traceback
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tests.gpu.machine import Machine

Figures = Mapping[str, Any]


class NotRun(Exception):
    """What a check found missing when it had begun; the message says what."""


class Check(NamedTuple):
    """One thing that is shown: raises AssertionError where it is not so, and returns figures."""

    name: str
    needs: tuple[str, ...]  # of Machine.has
    show: Callable[["Machine"], Figures | None]


class Outcome(NamedTuple):
    """How a check ended."""

    name: str
    result: str  # "passed", "failed" or "not run"
    why: str = ""  # it did not pass
    seconds: float = 0.0
    figures: Figures = MappingProxyType({})


CHECKS: list[Check] = []


def check(*needs: str) -> Callable[[Any], Any]:
    """Makes a function a check, which runs where the machine has all that it needs."""

    def add(show: Callable[["Machine"], Figures | None]) -> Callable[["Machine"], Figures | None]:
        CHECKS.append(Check(show.__name__, needs, show))
        return show

    return add


def run(one: Check, machine: "Machine") -> Outcome:
    """Run a check, or say what it is missing. No failure of one ends the others."""
    missing = [need for need in one.needs if need not in machine.has]
    if missing:
        return Outcome(one.name, "not run", f"needs {' and '.join(missing)}")
    if machine.remaining_s() <= 0:
        return Outcome(one.name, "not run", "the time was used up")
    began = time.monotonic()
    result, why, figures = "passed", "", {}
    try:
        figures = dict(one.show(machine) or {})
    except NotRun as missing_now:
        result, why = "not run", str(missing_now)
    except AssertionError as failure:
        result, why = "failed", str(failure) or traceback.format_exc().strip().splitlines()[-2]
    except Exception:
        result, why = "failed", traceback.format_exc()
    return Outcome(one.name, result, why, round(time.monotonic() - began, 1), figures)
