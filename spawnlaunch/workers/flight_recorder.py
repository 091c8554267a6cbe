"""The variables that make NCCL's process groups keep records, and dump them on request.

See hang/flight.py for the files that they name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from spawnlaunch.base import reading

SIZES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
DUMPS = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")


def is_on(environ: Mapping[str, str]) -> bool:
    """Whether the user has switched the records on."""
    values = (environ.get(name, "") for name in SIZES)
    return any(reading.is_number(value) and int(value) > 0 for value in values)


def variables(environ: Mapping[str, str], scratch: str) -> dict[str, str]:
    """The variables that workers need for dumps; names that the user has given stay."""
    if not is_on(environ):
        return {}
    dump = next((environ[name] for name in DUMPS if environ.get(name)), None)
    dump = dump or os.path.join(scratch, "flight-")
    pipe = environ.get(PIPE) or os.path.join(scratch, "ask-")
    return {PIPE: pipe, **dict.fromkeys(DUMPS, dump)}
