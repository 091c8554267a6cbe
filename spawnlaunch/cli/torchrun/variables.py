"""What torchrun reads from the environment: PET_* in place of flags, and a few names besides.

    PET_NPROC_PER_NODE=4  PET_STANDALONE=1  TORCH_ELASTIC_SHUTDOWN_TIMEOUT=60

A flag that is typed goes before its variable. The five of Kubeflow's pods are not read here, where
`world` finds that Kubeflow has started this process.
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
# A pod of Kubeflow's has these four (world/managers/kubeflow.py), and the number of workers.
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
        "nobody looks for workers that sleep in the kernel",
}  # fmt: skip


def given(environ: Mapping[str, str], typed: Iterable[flags.Given]) -> Iterator[flags.Given]:
    """The flags that variables stand for and nobody has typed, with values and variables' names.

    Raises UsageError for one that does not say yes or no where it should.
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
            raise errors.UsageError(f"{name}={reading.excerpt(value)} is neither 1 nor 0; type "
                                    f"unset {name}, or export {name}=1")  # fmt: skip
        elif int(value):
            yield flag, None, name


def _of_a_pod(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The variables that Kubeflow has given to this process, which `world` reads."""
    is_pod = all(environ.get(name) for name in POD)
    return OF_A_POD if is_pod and not any(environ.get(name) for name in CLOSER) else ()


def variable(long_name: str) -> str:
    """What torchrun calls a flag in the environment.

    >>> variable("--nproc-per-node")
    'PET_NPROC_PER_NODE'
    """
    return PREFIX + long_name.strip("-").replace("-", "_").upper()


def fields(environ: Mapping[str, str]) -> dict[str, Any]:
    """What a Request has of those variables that stand for no flag."""
    return {
        "notes": tuple(_notes(environ)),
        "prefix_template": environ.get(TEMPLATE, ""),
    }


def _notes(environ: Mapping[str, str]) -> Iterator[str]:
    """What is said of variables that do something under torchrun, and nothing here."""
    for name, what in NOT_LOOKED_FOR.items():
        if environ.get(name) not in (None, "", "0"):
            yield f"{name}: {what}; {INSTEAD}"
    if environ.get(HEALTH):
        yield f"{HEALTH}: no server for health checks is started here"


def substituted(args: Iterable[str], local_rank: str) -> tuple[str, ...]:
    """Arguments of the script with ${local_rank} as torchrun fills it in.

    In one that names it two dollars are one, as there, so that $$local_rank stays $local_rank. The
    others are left as they are, where torchrun breaks `sh -c 'kill $$'`.

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
    """The prefix of a worker's lines, by torchrun's template."""
    from string import Template

    known = {"role_name": request.role, "rank": rank, "local_rank": local_rank}
    return Template(template).safe_substitute(known)
