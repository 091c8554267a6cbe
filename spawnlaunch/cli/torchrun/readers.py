"""Read the values of torchrun's flags: a reader for each kind, as in `values`, with its note.

A reader raises ValueError where torchrun refuses the value too. It returns a note for the user, or
None: nothing is lost. Only the reader of --rdzv-conf, which is spawnlaunch's flag too, returns a
value.
"""

from __future__ import annotations

from collections.abc import Iterable
from shlex import quote

from spawnlaunch.base import reading
from spawnlaunch.cli import values

OURS = ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"]  # these always end a launch
PASSED_ON = ["SIGUSR1", "SIGUSR2", "SIGWINCH"]

# The keys of --rdzv-conf. Some have no effect here: launchers do not poll, and there is no store.
TIMES = ("join_timeout", "last_call_timeout", "keep_alive_interval", "keep_alive_max_attempt")
RENDEZVOUS = (
    *(*TIMES, "is_host", "read_timeout", "close_timeout", "timeout", "heartbeat_timeout"),
    *("use_libuv", "store_type"),
)
# As in torch/distributed/elastic/rendezvous/api.py, get_as_bool.
YES, NO = ("1", "true", "t", "yes", "y"), ("0", "false", "f", "no", "n")


def anything(_: str) -> None:
    pass


def seconds(text: str) -> None:
    try:
        float(text)
    except ValueError:
        values.seconds(text)  # raises ValueError with the words for the user


def signals(text: str) -> str | None:
    """Read names separated by commas; None where they are torchrun's default."""
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
    """Read words separated by commas; a double comma in a word means a comma."""
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
    """Accept only the plug-in "default", which is torchrun's own."""
    if text == "default":
        return
    raise ValueError(
        f"{reading.excerpt(text)} is a plug-in of torchrun's, which is not loaded; leave it out, "
        "and name the files with --log-dir, a template as in --log-dir logs/{host}/{rank}"
    )


def rendezvous(text: str) -> dict[str, str]:
    """Read torchrun's --rdzv-conf, also with quotes that a shell has left and unknown keys.

    >>> rendezvous("'join_timeout=900,is_host=1'")
    {'join_timeout': '900', 'is_host': '1'}
    """
    found = {}
    for entry in filter(None, text.split(",")):
        name, _, value = (part.strip(" '\"") for part in entry.partition("="))
        if not name or not value:
            known = ", ".join(RENDEZVOUS)
            raise ValueError(f"{reading.excerpt(entry)} is not NAME=VALUE; type some of {known}, "
                             "as in join_timeout=900")  # fmt: skip
        if name == "is_host":
            if value.lower() not in (*YES, *NO):
                raise ValueError(f"is_host={reading.excerpt(value)} is not 1 or 0; type is_host=1")
            found[name] = "1" if value.lower() in YES else ""
        else:
            found[name] = f"{values.seconds(value):.15g}" if name in TIMES else value
    return found


def strange(conf: Iterable[str]) -> list[str]:
    """The note about keys in --rdzv-conf that have no effect."""
    found = sorted({*conf} - {*RENDEZVOUS})
    known = ", ".join(RENDEZVOUS)
    names = f"--rdzv-conf {', '.join(found)}"
    return [f"{names}: such names have no effect; type some of {known}"] if found else []
