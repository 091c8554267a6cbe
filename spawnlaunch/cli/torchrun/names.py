"""torchrun's flags that spawnlaunch lacks: accepted without effect, or with another flag's effect.

A row is as in the table of `flags`, but its reader returns the note for a user who gives the flag,
or None: nothing is lost. A flag with a row in `flags` needs none here, and that row counts.

Source: torch/distributed/run.py (get_args_parser) and torch/distributed/launch.py of torch 2.13.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from spawnlaunch.cli import flags
from spawnlaunch.cli.torchrun import readers

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
    _row("--start-method", _METHODS),  # only for functions, which torchrun's command never starts
    _row("--event-log-handler", readers.anything),  # --result writes how each rank ended
    _row("--signals-to-handle", readers.signals),
    _row("--run-path", {}, alone=""),  # no difference for the script, only for its process
    _row("--use-env", {}, alone="", field="local_rank_arg"),
    _row("--duplicate-stdout-filters", readers.filters),
    _row("--duplicate-stderr-filters", readers.filters),
    _row("--logs-specs", readers.no_plugin),
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
