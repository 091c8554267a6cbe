"""Call a function in workers: python -m tests.torch_suite.agent LAUNCHER JSON

The last line on stdout is what came of it, as JSON: the values, or the first failure.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.torch_suite import functions


def plain(value: Any) -> Any:
    """As JSON has it: of a tensor its shape, of what is large its size."""
    if hasattr(value, "shape"):
        return {"shape": list(value.shape)}
    return {"size": len(value)} if isinstance(value, dict) else value


def called(launcher: str, order: dict[str, Any]) -> dict[str, Any]:
    api: Any
    if launcher == "torchrun":
        from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
        from torch.distributed.launcher import api

        streams: Any = Std
        api.DefaultLogsSpecs = DefaultLogsSpecs
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

        api.ChildFailedError = ChildFailedError
    else:
        from tests.torch_suite import api

        streams = int
    read = lambda asked: (  # noqa: E731
        {int(rank): streams(number) for rank, number in asked.items()}
        if isinstance(asked, dict)
        else streams(asked)
    )
    logs = api.DefaultLogsSpecs(
        order.pop("logs"), *(read(order.pop(w)) for w in ("redirects", "tee"))
    )
    function, args = getattr(functions, order.pop("function")), order.pop("args")
    config = api.LaunchConfig(logs_specs=logs, start_method="fork", run_id="7", **order)
    try:
        values = api.elastic_launch(config, function)(*args)
    except api.ChildFailedError as error:
        rank, failure = error.get_first_failure()
        return {"rank": rank, "exitcode": failure.exitcode, "message": str(failure.message)}
    return {"values": [plain(values[rank]) for rank in sorted(values)]}


def main() -> None:
    print("\n" + json.dumps(called(sys.argv[1], json.loads(sys.argv[2]))), flush=True)


if __name__ == "__main__":
    main()
