"""What a worker left about its failure: torch's error file, else the tail of its stderr.

The format is that of torch.distributed.elastic.multiprocessing.errors.error_handler:

    {"message": {"message": "ValueError: bad", "extraInfo": {"py_callstack": "Traceback ...",
                                                             "timestamp": "1760000000"}}}

where older versions, and programs of the user's, write a plain string as the outer "message".
"""

from __future__ import annotations

import time

from spawnlaunch import reading
from spawnlaunch.run.outcome import Outcome
from spawnlaunch.run.signals import exit_status, how_it_ended

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TAIL_BYTES = 16384
TAIL_LINES = 60


def last_words(outcome: Outcome) -> str | None:
    """The traceback of a failed worker, or what it wrote last; None where nothing is kept."""
    words = traceback_in(_read(outcome.error_file))
    return words[-TAIL_BYTES:] if words else _said_last(outcome)


def traceback_in(record: Any) -> str | None:
    """The traceback in the content of an error file, else its message."""
    message = record.get("message") if isinstance(record, dict) else None
    if isinstance(message, str):
        return message
    if not isinstance(message, dict):
        return None
    extra = message.get("extraInfo")
    stack = extra.get("py_callstack") if isinstance(extra, dict) else None
    text = stack or message.get("message")
    return text if isinstance(text, str) else None


def copy(outcome: Outcome, path: str) -> None:
    """Leave the first failure in the error file that the user named. Raises OSError."""
    import json  # takes 2 ms, and is needed after a failure only

    from spawnlaunch.run import filing

    record = _read(outcome.error_file)
    if not isinstance(record, dict):
        record = _made_up(outcome)
    if isinstance(record.get("message"), dict):
        record["message"].setdefault("errorCode", exit_status(outcome.code))
    filing.write(path, json.dumps(record))


def _made_up(outcome: Outcome) -> dict[str, Any]:
    return {
        "message": {
            "message": f"rank {outcome.rank} {how_it_ended(outcome.code)}",
            "extraInfo": {
                "py_callstack": _said_last(outcome) or "",
                "timestamp": str(int(time.time())),
            },
        }
    }


def _read(path: str | None) -> Any:
    """The content of an error file; None where there is none, or nothing that makes sense.

    A worker may have left anything there, which a parser may fail of in any way.
    """
    text = path and reading.file_text(path)
    if not text:
        return None
    import json

    try:
        return json.loads(text)
    except Exception:  # also RecursionError and MemoryError
        return None


def _said_last(outcome: Outcome) -> str | None:
    """The last lines that a worker wrote to its stderr, wherever that went."""
    return _last_lines(outcome.tail) if outcome.tail else _tail(outcome.stderr)


def _last_lines(text: str, whole: bool = True) -> str | None:
    lines = text.splitlines()
    return "\n".join((lines if whole else lines[1:])[-TAIL_LINES:]) or None


def _tail(path: str | None) -> str | None:
    """The last lines of a file of stderr."""
    found = path and reading.end_of_file(path, TAIL_BYTES)
    return _last_lines(*found) if found else None
