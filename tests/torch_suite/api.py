"""The names of torch.distributed.launcher.api that PyTorch's tests call, over spawnlaunch.launch.

`agent` imports them from here or from torch: the one import that is substituted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import spawnlaunch


class DefaultLogsSpecs(NamedTuple):
    """Where output goes, by torchrun's numbers: 1 is stdout, 2 stderr, 3 both."""

    log_dir: str
    redirects: int | dict[int, int] = 0
    tee: int | dict[int, int] = 0


class LaunchConfig(NamedTuple):
    """One launcher's share of a launch."""

    min_nodes: int
    max_nodes: int
    nproc_per_node: int
    logs_specs: DefaultLogsSpecs
    run_id: str = ""
    role: str = "default_role"
    rdzv_endpoint: str = ""
    rdzv_backend: str = "c10d"
    max_restarts: int = 3
    start_method: str = "spawn"  # here each worker is a new Python, whatever it says


class ProcessFailure(NamedTuple):
    """How a worker failed."""

    exitcode: int
    message: str


class ChildFailedError(Exception):
    """A function failed in a rank."""

    def __init__(self, rank: int, failure: ProcessFailure) -> None:
        super().__init__(rank, failure)
        self._first = (rank, failure)

    def get_first_failure(self) -> tuple[int, ProcessFailure]:
        return self._first


def _streams(asked: int | dict[int, int]) -> str:
    if isinstance(asked, int):
        return str(int(asked))
    return ",".join(f"{rank}:{int(streams)}" for rank, streams in asked.items())


def elastic_launch(
    config: LaunchConfig, entrypoint: Callable[..., Any]
) -> Callable[..., dict[int, Any]]:
    """What calls `entrypoint` in this node's workers, and gives what they return."""
    logs = config.logs_specs
    flags = {
        "nproc": config.nproc_per_node,
        "nnodes": f"{config.min_nodes}:{config.max_nodes}",
        "role": config.role,
        "rdzv_id": config.run_id,
        "rdzv_backend": config.rdzv_backend,
        "rdzv_endpoint": config.rdzv_endpoint,
        "max_restarts": config.max_restarts,
        "log_dir": logs.log_dir,
        "redirects": _streams(logs.redirects),
        "tee": _streams(logs.tee),
    }

    def start(*args: Any) -> dict[int, Any]:
        try:
            results = spawnlaunch.launch(entrypoint, *args, **flags)
        except (Exception, SystemExit) as error:
            for failure in (error, error.__cause__):
                if isinstance(failure, spawnlaunch.WorkerError):
                    ended = ProcessFailure(failure.status, failure.traceback or str(failure))
                    raise ChildFailedError(failure.rank, ended) from error
            raise
        return dict(enumerate(results))

    return start
