"""Read torchrun's variables: PET_* in place of flags, and a few others.

    PET_NPROC_PER_NODE=4  PET_STANDALONE=1  TORCH_ELASTIC_SHUTDOWN_TIMEOUT=60

A flag on the command line takes precedence over its variable. This module does not read the five of
Kubeflow's pods where Kubeflow has started this process: `world` reads those.
Source: torch/distributed/argparse_util.py, torch/distributed/elastic/agent/server/.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from spawnlaunch.base import errors, reading
from spawnlaunch.cli import flags
from spawnlaunch.cli.torchrun import names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PREFIX = "PET_"
# A pod of Kubeflow has these four (world/managers/kubeflow.py), and the number of workers.
POD = ("PET_NNODES", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")
OF_A_POD = (*POD, "PET_NPROC_PER_NODE")
# The rows of ORDER above Kubeflow's (world/managers/__init__.py), which this room may not import;
# tests/world/test_managers.py compares the two.
CLOSER = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "FLUX_TASK_RANK", "SLURM_STEP_ID",
          "PALS_RANKID")  # fmt: skip
NOT_READ = ("--logs-specs", "--numa-binding", "--use-env", "--help")  # by torchrun either
SHUTDOWN = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
TEMPLATE = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"
HEALTH = "TORCHELASTIC_HEALTH_CHECK_PORT"
INSTEAD = "--hang-timeout SECONDS shows where workers are when they write nothing"
NOT_LOOKED_FOR = {
    "TORCHELASTIC_ENABLE_FILE_TIMER": "no watchdog reads the workers' timers here",
    "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT":  # seconds
        "nothing looks for workers that sleep in the kernel here",
}  # fmt: skip


def given(environ: Mapping[str, str], typed: Iterable[flags.Given]) -> Iterator[flags.Given]:
    """The flags that only variables give, with their values and the variables' names.

    Raises UsageError for a variable that is neither yes nor no where it should be.
    """
    names_typed = {flag.name for flag, _, _ in typed}
    return (each for each in _exported(environ) if each[0].name not in names_typed)


def _exported(environ: Mapping[str, str]) -> Iterator[flags.Given]:
    if value := environ.get(SHUTDOWN):
        flag = names.flag("--shutdown-timeout")
        assert flag is not None
        yield flag, value, SHUTDOWN
    left = _of_a_pod(environ)
    for long_name in names.TORCHRUN:
        name = variable(long_name)
        value = environ.get(name, "")
        flag = names.flag(long_name)
        if not value or name in left or long_name in NOT_READ or flag is None:
            continue
        if flag.read:
            yield flag, value, name
        elif not reading.is_number(value):
            raise errors.UsageError(
                f"{name}={reading.excerpt(value)} is not 1 or 0; unset {name}, or export {name}=1"
            )
        elif int(value):
            yield flag, None, name


def _of_a_pod(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The names of the variables that Kubeflow gave this process, which `world` reads."""
    is_pod = all(environ.get(name) for name in POD)
    return OF_A_POD if is_pod and not any(environ.get(name) for name in CLOSER) else ()


def variable(long_name: str) -> str:
    """The name of torchrun's variable for a flag.

    >>> variable("--nproc-per-node")
    'PET_NPROC_PER_NODE'
    """
    return PREFIX + long_name.strip("-").replace("-", "_").upper()


def fields(environ: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a Request that come from variables without a flag."""
    return {
        "notes": tuple(_notes(environ)),
        "prefix_template": environ.get(TEMPLATE, ""),
    }


def _notes(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the notes about variables that have an effect under torchrun only."""
    for name, what in NOT_LOOKED_FOR.items():
        if environ.get(name) not in (None, "", "0"):
            yield f"{name}: {what}; {INSTEAD}"
    if environ.get(HEALTH):
        yield f"{HEALTH}: no server for health checks is started here"


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


def filled(template: str, rank: int, local_rank: int, request: flags.Request) -> str:
    """Fill in torchrun's template for the prefix of a worker's lines."""
    from string import Template

    known = {"role_name": request.role, "rank": rank, "local_rank": local_rank}
    return Template(template).safe_substitute(known)
