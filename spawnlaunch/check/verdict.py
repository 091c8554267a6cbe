"""One line of what the check says."""

from typing import NamedTuple

# Of these FAIL alone is status 1. A note is what the machine is like, and no fault of the launch.
OK, NOTE, WARN, FAIL = "ok", "note", "warn", "fail"


class Verdict(NamedTuple):
    """What was looked at, how it is, and what to do."""

    name: str
    status: str  # OK, NOTE, WARN or FAIL
    message: str
    remedy: str = ""
    ranks: tuple[int, ...] = ()  # whom it is about; empty: all, or no one rank
