"""The values of torchrun's flags: a reader for each kind, as in `values`, and what is to be said.

A reader raises ValueError where torchrun refuses the value too. What it returns is a note for the
user, or None: nothing is lost.
"""

from __future__ import annotations

from shlex import quote

from spawnlaunch import values
from spawnlaunch.reading import excerpt

OURS = ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"]  # these end a launch, whatever is typed
PASSED_ON = ["SIGUSR1", "SIGUSR2", "SIGWINCH"]


def anything(_: str) -> None:
    pass


def seconds(text: str) -> None:
    try:
        float(text)
    except ValueError:
        values.seconds(text)  # says it in words


def signals(text: str) -> str | None:
    """Names with a comma between them; None where they are torchrun's default."""
    names = [name.strip() for name in text.split(",")]
    passed_on = [name for name in names if name in PASSED_ON]
    if passed_on:
        return (
            f"{' and '.join(passed_on)} goes to the workers that catch it, and ends nothing; the "
            f"launch goes on, where torchrun kills the workers after --shutdown-timeout"
        )
    others = [name for name in names if name not in OURS]
    return f"{' and '.join(others)} is not passed on to the workers" if others else None


def filters(text: str) -> str | None:
    """Words with a comma between them, where a double one is a comma."""
    words = [word.replace("\0", ",") for word in text.replace(",,", "\0").split(",")]
    given = [word for word in words if word]
    if not given:
        return None
    each = " ".join(f"-e {quote(word)}" for word in given)
    return (
        "there is no filtered log; with --log-dir DIR all lines are kept, and these found by "
        f"grep -rhF {each} DIR"
    )


def no_plugin(text: str) -> None:
    raise ValueError(
        f"{excerpt(text)} is a plug-in of torchrun's, which is not loaded; leave it out, and name "
        "the files with --log-dir, a template as in --log-dir logs/{host}/{rank}"
    )
