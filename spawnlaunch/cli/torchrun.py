"""torchrun's names: its flags that have no effect here, its abbreviations, its variables for flags.

Imported only where one of them is used; docs/torchrun.md has all of them.

A flag with a row in `flags` needs none here, and that row counts.

A variable stands in place of a flag, which takes precedence:

    PET_NPROC_PER_NODE=4  PET_STANDALONE=1  TORCH_ELASTIC_SHUTDOWN_TIMEOUT=60

The five variables of Kubeflow's pods are not read here where Kubeflow has started this process:
`world` reads those.

Sources: torch/distributed/run.py (get_args_parser), torch/distributed/launch.py and
torch/distributed/argparse_util.py of torch 2.13, and torch/distributed/elastic/agent/server/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from spawnlaunch.base import errors, reading
from spawnlaunch.cli import flags

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

_FILTERS = "there is no filtered log; with --log-dir DIR all lines are kept, for grep -rhF WORD DIR"
# The flags that have no effect here, with the note for a user who gives one; "": nothing is lost.
NOTES = {
    "--monitor-interval": "",  # the end of a worker is an event
    "--start-method": "",  # only for functions, which torchrun's command never starts
    "--event-log-handler": "",  # --result writes how each rank ended
    "--run-path": "",  # no difference for the script, only for its process
    "--use-env": "",
    "--signals-to-handle": (
        "SIGTERM, SIGINT, SIGHUP and SIGQUIT end a launch, and SIGUSR1, SIGUSR2 and SIGWINCH go to "
        "the workers that catch them, whichever are named"
    ),
    "--duplicate-stdout-filters": _FILTERS,
    "--duplicate-stderr-filters": _FILTERS,
    "--logs-specs": (
        "plug-ins of torchrun's are not loaded; name the files with --log-dir, a template as in "
        "--log-dir logs/{host}/{rank}"
    ),
}
SWITCHES = ("--run-path", "--use-env")
FIELDS = {"--use-env": "local_rank_arg"}


def _row(name: str, note: str) -> flags.Flag:
    """A row as in `flags`, whose reader returns the note whatever the value is."""
    is_switch = name in SWITCHES
    read: Callable[[str], str] | Mapping[str, str] = {} if is_switch else lambda _: note
    bare_value = "" if is_switch else None
    return flags.Flag("", name, "", read, None, bare_value, "", (), False, FIELDS.get(name, ""))


FLAGS = {name: _row(name, note) for name, note in NOTES.items()}


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
    name = name.replace("_", "-")
    longer = [] if name in flags.SPELLINGS or name in FLAGS else beginning(name)
    return longer[0] if len(longer) == 1 else name, equals, text


def beginning(name: str) -> list[str]:
    """The names of torchrun's flags that begin with `name`.

    >>> beginning("--sta")
    ['--standalone', '--start-method']
    """
    if not name.startswith("--") or len(name) == 2:
        return []
    return [each for each in TORCHRUN if each.startswith(name)]


# Variables

PREFIX = "PET_"
# A pod of Kubeflow has these four (world/managers/pods.py), and the number of workers.
POD = ("PET_NNODES", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")
OF_A_POD = (*POD, "PET_NPROC_PER_NODE")
# The rows of ORDER above Kubeflow's (world/managers/__init__.py), which this room may not import;
# tests/world/test_managers.py compares the two.
CLOSER = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "FLUX_TASK_RANK", "SLURM_STEP_ID",
          "PALS_RANKID")  # fmt: skip
NOT_READ = ("--logs-specs", "--numa-binding", "--use-env", "--help")  # by torchrun either
SHUTDOWN = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
INSTEAD = "--hang-timeout SECONDS shows where workers are when they write nothing"
# The variables that have no effect here, with the note for a user who exports one.
NOTES_ON_VARIABLES = {
    "TORCHELASTIC_ENABLE_FILE_TIMER": f"no watchdog reads the workers' timers here; {INSTEAD}",
    "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT":  # seconds
        f"nobody looks for workers that sleep in the kernel; {INSTEAD}",
    "TORCHELASTIC_HEALTH_CHECK_PORT": "no server for health checks is started here",
}  # fmt: skip


def flags_of_variables(
    environ: Mapping[str, str], typed: Iterable[flags.FlagValue]
) -> Iterator[flags.FlagValue]:
    """The flags that only variables give, with their values and the variables' names.

    Raises UsageError for a variable that is neither yes nor no where it should be.
    """
    names_typed = {flag.name for flag, _, _ in typed}
    return (each for each in _exported(environ) if each[0].name not in names_typed)


def _exported(environ: Mapping[str, str]) -> Iterator[flags.FlagValue]:
    if value := environ.get(SHUTDOWN):
        yield flags.SPELLINGS["--shutdown-timeout"], value, SHUTDOWN
    # The variables that Kubeflow gave this process, which `world` reads.
    is_pod = all(environ.get(name) for name in POD) and not any(map(environ.get, CLOSER))
    read_by_world = OF_A_POD if is_pod else ()
    for long_name in TORCHRUN:
        name = variable(long_name)
        value = environ.get(name, "")
        found = flag(long_name)
        if not value or name in read_by_world or long_name in NOT_READ or found is None:
            continue
        if found.read:
            yield found, value, name
        elif not reading.is_number(value):
            raise errors.UsageError(
                f"{name}={reading.excerpt(value)} is not 1 or 0; unset {name}, or export {name}=1"
            )
        elif int(value):
            yield found, None, name


def notes_on_variables(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a note for each variable that has an effect under torchrun only."""
    for name, note in NOTES_ON_VARIABLES.items():
        if environ.get(name) not in (None, "", "0"):
            yield f"{name}: {note}"


def variable(long_name: str) -> str:
    """The name of torchrun's variable for a flag.

    >>> variable("--nproc-per-node")
    'PET_NPROC_PER_NODE'
    """
    return PREFIX + long_name.strip("-").replace("-", "_").upper()


def substituted(args: Iterable[str], local_rank: str) -> tuple[str, ...]:
    """Replace ${local_rank} in the script's arguments, as torchrun does.

    In an argument with that name two dollars become one, as under torchrun, so that $$local_rank
    gives $local_rank. Other arguments stay as they are, where torchrun breaks `sh -c 'kill $$'`.

    >>> substituted(["kill $$", "$local_rank $$$$", "$$local_rank"], "3")
    ('kill $$', '3 $$', '$local_rank')
    """
    import re
    from string import Template

    names = re.compile(r"\$(local_rank(?!\w)|\{local_rank\})", re.ASCII)
    return tuple(
        Template(arg).safe_substitute(local_rank=local_rank) if names.search(arg) else arg
        for arg in args
    )


def filled(template: str, role: str, rank: int, local_rank: int) -> str:
    """Fill in torchrun's template for the prefix of a worker's lines."""
    from string import Template

    return Template(template).safe_substitute(role_name=role, rank=rank, local_rank=local_rank)


# Scripts written for torch.distributed.launch, which expect --local-rank=N

# add_argument("--local_rank", ...), also as the second of two names, but not tyro, click or absl.
DECLARED = r"""(?:add_argument|option)\([^()]{0,80}?["'](--local[-_]rank)["']"""
MEANT = ("--local-rank", "--use-env")  # a command line with one of these flags needs no warning
FROM_ENVIRONMENT = "LOCAL_RANK"  # a script that reads this needs no argument


def advice_on_local_rank(request: flags.Request, text: str) -> Iterator[str]:
    """Yield a warning about a script of this text that declares the argument and is given none.

    Or is given one in another spelling, which is unknown to its argparse.
    """
    import re

    names, given = re.findall(DECLARED, text), request.local_rank_arg
    if not names:
        return
    script, name = request.program.target, names[0]
    kind = "underscore" if "_" in name else "hyphen"
    if given and given not in names:
        yield f"{script} declares {name}, and is given {given}=N; use --local-rank-arg {kind}"
    words = (*request.program.args, *request.flags)
    is_meant = any(word.replace("_", "-").startswith(MEANT) for word in words)
    if not is_meant and FROM_ENVIRONMENT not in text:
        yield (
            f"{script} declares {name} and does not read LOCAL_RANK, so all ranks may take the "
            f"first device; to give it {name}=N, use --local-rank-arg {kind}"
        )
