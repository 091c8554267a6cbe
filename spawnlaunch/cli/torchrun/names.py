"""torchrun's flags that spawnlaunch lacks: accepted without effect, or with another flag's effect.

A row is as in the table of `flags`, but its reader returns the note for a user who gives the flag,
or None: nothing is lost. It raises ValueError where torchrun refuses the value too. A flag with a
row in `flags` needs none here, and that row counts.

Source: torch/distributed/run.py (get_args_parser) and torch/distributed/launch.py of torch 2.13.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from shlex import quote

from spawnlaunch.base import reading
from spawnlaunch.cli import flags, values

# All flags of torchrun, and the additional one of torch.distributed.launch.
# fmt: off
TORCHRUN = (
    "--help", "--nnodes", "--nproc-per-node", "--rdzv-backend",
    "--rdzv-endpoint", "--rdzv-id", "--rdzv-conf", "--standalone",
    "--max-restarts", "--monitor-interval", "--start-method", "--event-log-handler",
    "--role", "--module", "--no-python", "--run-path",
    "--log-dir", "--redirects", "--tee", "--local-ranks-filter",
    "--duplicate-stdout-filters", "--duplicate-stderr-filters", "--node-rank", "--master-addr",
    "--master-port", "--local-addr", "--logs-specs", "--numa-binding",
    "--signals-to-handle", "--shutdown-timeout", "--virtual-local-rank", "--use-env",
)
# fmt: on
SHORT = ("-r", "-t")  # flags with a value that may follow without a space

OURS = ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"]  # these always end a launch
PASSED_ON = ["SIGUSR1", "SIGUSR2", "SIGWINCH"]


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


def _row(
    name: str,
    read: Callable[[str], str | None] | Mapping[str, None],
    *,
    alone: str | None = None,
    field: str = "",
) -> flags.Flag:
    return flags.Flag("", name, "", read, None, alone, "", (), False, field)


_METHODS = dict.fromkeys(("spawn", "fork", "forkserver"))
_ROWS = [
    _row("--monitor-interval", seconds),  # the end of a worker is an event
    _row("--start-method", _METHODS),  # only for functions, which torchrun's command never starts
    _row("--event-log-handler", lambda _: None),  # --result writes how each rank ended
    _row("--signals-to-handle", signals),
    _row("--run-path", {}, alone=""),  # no difference for the script, only for its process
    _row("--use-env", {}, alone="", field="local_rank_arg"),
    _row("--duplicate-stdout-filters", filters),
    _row("--duplicate-stderr-filters", filters),
    _row("--logs-specs", no_plugin),
]
FLAGS = {row.name: row for row in _ROWS}


def flag(name: str) -> flags.Flag | None:
    """The flag of this name: spawnlaunch's, or else torchrun's."""
    return flags.spelt(name) or FLAGS.get(name.replace("_", "-"))


def split(word: str) -> tuple[str, str, str]:
    """Split a flag as torchrun does: into its whole name, the separator, and its value.

    >>> split("-r3"), split("--nproc_per=2"), split("--stand")
    (('-r', '=', '3'), ('--nproc-per-node', '=', '2'), ('--standalone', '', ''))
    """
    if word[:2] in SHORT and word[2:3] not in ("", "="):
        return word[:2], "=", word[2:]
    name, equals, text = word.partition("=")
    return _whole(name.replace("_", "-")), equals, text


def beginning(name: str) -> list[str]:
    """The names of torchrun's flags that begin with `name`.

    >>> beginning("--sta")
    ['--standalone', '--start-method']
    """
    if not name.startswith("--") or len(name) == 2:
        return []
    return [each for each in TORCHRUN if each.startswith(name)]


def _whole(name: str) -> str:
    """The only name of torchrun's flags that begins with `name`; else the name itself."""
    found = [] if name in flags.SPELLINGS or name in FLAGS else beginning(name)
    return found[0] if len(found) == 1 else name
