"""Writes which functions of spawnlaunch a process enters, each once, as it first does.

Of Python 3.12 on this costs nothing after the first time (PEP 669); before, a profile function is
called for every call, which is slower and says the same. The file is SPAWNLAUNCH_ENTERED, where
this directory is on PYTHONPATH.
"""

import os
import sys
import threading

SINK = os.environ.get("SPAWNLAUNCH_ENTERED")
PARTS = ("/spawnlaunch/", "/train/")
_seen: set[object] = set()


def _note(code: object) -> None:
    if code in _seen:
        return
    _seen.add(code)
    file, name = code.co_filename, code.co_qualname if sys.version_info >= (3, 11) else code.co_name  # type: ignore[attr-defined]
    if any(part in file for part in PARTS) and "/site-packages/" not in file:
        with open(SINK or os.devnull, "a") as sink:
            sink.write(f"{file}:{name}\n")


if SINK and sys.version_info >= (3, 12):
    TOOL = sys.monitoring.COVERAGE_ID

    def _started(code: object, _: int) -> object:
        _note(code)
        return sys.monitoring.DISABLE

    sys.monitoring.use_tool_id(TOOL, "entered")
    sys.monitoring.register_callback(TOOL, sys.monitoring.events.PY_START, _started)
    sys.monitoring.set_events(TOOL, sys.monitoring.events.PY_START)
elif SINK:

    def _called(frame: object, event: str, _: object) -> None:
        if event == "call":
            _note(frame.f_code)  # type: ignore[attr-defined]

    sys.setprofile(_called)
    threading.setprofile(_called)
