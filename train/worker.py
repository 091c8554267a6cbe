"""One worker, from its flags to its exit status."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .config import Config, parse
from .errors import RefusedError, refuse
from .leaving import crash, leave_on_interrupt

if TYPE_CHECKING:
    from .task import Task


def language(config: Config) -> Task:
    """The task that is trained when nothing else is said."""
    from .tasks.language import Language

    return Language(config.context, config.layers, config.width)


def main(
    arguments: Sequence[str] | None = None, make_task: Callable[[Config], Task] = language
) -> None:
    """Run one worker; returns after a complete run and exits the process otherwise."""
    leave_on_interrupt()
    config = parse(sys.argv[1:] if arguments is None else arguments)
    try:
        # Only now: torch takes a second to import, and a typing error should not.
        from .run import run

        run(config, make_task(config))
    except RefusedError as refusal:
        refuse(refusal)
    except Exception as error:
        crash(error)
