"""torchrun's flags that are none of ours: taken without effect, or with one that another flag has.

A row is one as in the table of `flags`, but its reader returns what is said where the flag was
typed, or None: nothing is lost. A flag that gets a row in `flags` needs none here, and that one
counts.

Source: torch/distributed/run.py (get_args_parser) and torch/distributed/launch.py of torch 2.13.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from spawnlaunch.cli import flags
from spawnlaunch.cli.torchrun import readers

# All flags of torchrun, and the one that torch.distributed.launch has besides.
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
SHORT = ("-r", "-t")  # whose value may follow without a space


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
    _row("--monitor-interval", readers.seconds),  # the end of a worker is an event
    _row("--start-method", _METHODS),  # of functions, which torchrun's own command has none of
    _row("--event-log-handler", readers.anything),  # --result tells how each rank ended
    _row("--signals-to-handle", readers.signals),
    _row("--run-path", {}, alone=""),  # the same to the script, but for the process around it
    _row("--use-env", {}, alone="", field="local_rank_arg"),
    _row("--duplicate-stdout-filters", readers.filters),
    _row("--duplicate-stderr-filters", readers.filters),
    _row("--logs-specs", readers.no_plugin),
]
FLAGS = {row.name: row for row in _ROWS}


def flag(name: str) -> flags.Flag | None:
    """The flag that is called so: one of ours, or else one of torchrun's."""
    return flags.spelt(name) or FLAGS.get(name.replace("_", "-"))


def split(word: str) -> tuple[str, str, str]:
    """A flag as torchrun reads it: its whole name, what is between it and its value, and the value.

    >>> split("-r3"), split("--nproc_per=2"), split("--stand")
    (('-r', '=', '3'), ('--nproc-per-node', '=', '2'), ('--standalone', '', ''))
    """
    if word[:2] in SHORT and word[2:3] not in ("", "="):
        return word[:2], "=", word[2:]
    name, equals, text = word.partition("=")
    return _whole(name.replace("_", "-")), equals, text


def beginning(name: str) -> list[str]:
    """torchrun's names that begin so.

    >>> beginning("--sta")
    ['--standalone', '--start-method']
    """
    if not name.startswith("--") or len(name) == 2:
        return []
    return [each for each in TORCHRUN if each.startswith(name)]


def _whole(name: str) -> str:
    """The only name of torchrun's that begins so; else the name itself."""
    found = [] if name in flags.SPELLINGS or name in FLAGS else beginning(name)
    return found[0] if len(found) == 1 else name
