"""The file of --result: how every rank of this launcher ended, for programs.

    {"status": 7, "cause": "failure", "signal": null, "first_failure": 1, "host": "node0",
     "run_id": "local-4711-1c9e04f2", "oom": null,
     "restarts": [{"cause": "failure", "rank": 3, "status": 139, "signal": "SIGSEGV",
                   "seconds": 8.5}, ...],
     "ranks": [{"rank": 0, "local_rank": 0, "pid": 4713, "status": 143, "signal": "SIGTERM",
                "told": "SIGTERM", "seconds": 1.25}, ...]}

`status` is an exit status as the shell has it; 74 without a cause means that output was lost.
`signal` names what ended a rank (above: the launch), `told` what the launcher had sent it before;
both are null where there was nothing.
`restarts` has one entry for each attempt that was followed by another, with the rank that failed
first; all else is about the last attempt.
"""

from __future__ import annotations

from spawnlaunch.run.outcome import Attempt, Ending, Outcome
from spawnlaunch.run.signals import exit_status, name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def as_dict(ending: Ending) -> dict[str, Any]:
    """The content of the file, ranks in their order."""
    cause, failure = ending.cause, ending.first_failure
    return {
        "status": ending.status,
        "cause": cause.kind if cause else None,
        "signal": name(cause.number) if cause and cause.kind == "signal" else None,
        "first_failure": failure.rank if failure else None,
        "host": ending.hostname,
        "run_id": ending.run_id,
        "oom": ending.oom,
        "restarts": [_restart(attempt) for attempt in ending.restarted],
        "ranks": [_rank(outcome) for outcome in sorted(ending.outcomes)],
    }


def _restart(attempt: Attempt) -> dict[str, Any]:
    cause = attempt.cause
    return {
        "cause": cause.kind,
        "rank": cause.number if cause.kind == "failure" else None,
        "status": attempt.status,
        "signal": name(-cause.code) if cause.code < 0 else None,
        "seconds": round(attempt.healthy_s, 3),
    }


def _rank(outcome: Outcome) -> dict[str, Any]:
    return {
        "rank": outcome.rank,
        "local_rank": outcome.local_rank,
        "pid": outcome.pid,
        "status": exit_status(outcome.code),
        "signal": name(-outcome.code) if outcome.code < 0 else None,
        "told": name(outcome.told) if outcome.told else None,
        "seconds": round(outcome.after_s, 3),
    }


def write(ending: Ending, path: str) -> None:
    """Write the file, whole or not at all. Raises OSError."""
    import json  # takes 2 ms, and is needed with --result only

    from spawnlaunch.run import filing

    filing.write(path, json.dumps(as_dict(ending), indent=1) + "\n")
