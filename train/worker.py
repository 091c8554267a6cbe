"""One worker, from its flags to its exit status."""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Sequence

from .commandline import build, parse
from .errors import RefusedError, StoppedError, refuse
from .leaving import PREEMPTED, crash, leave, leave_on_interrupt, stop
from .preemption import note_signals


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one worker, and exit with its status."""
    leave_on_interrupt()
    note_signals()
    if (number := os.environ.get("SPAWNLAUNCH_STACK_SIGNAL", "")).isdecimal():
        # With it the launcher asks where a worker hangs; the stacks go to stderr.
        faulthandler.register(int(number), all_threads=True, chain=False)
    try:
        config, task_class = parse(sys.argv[1:] if arguments is None else arguments)
        # Only now: torch takes a second to import, and a typing error should not.
        from .run import run

        status = run(config, build(config, task_class), PREEMPTED)
    except RefusedError as refusal:
        refuse(refusal)
    except StoppedError as reason:
        stop(reason)
    except Exception as error:
        crash(error)
    leave(status)
