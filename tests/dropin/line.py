"""A command line that is tried under both launchers."""

import shlex
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Line(NamedTuple):
    """What is typed, and where."""

    text: str  # behind the launcher's name; {dir}, {logs}, {tmp}, {python}, {port}, {busy}
    environ: Mapping[str, str] = MappingProxyType({})
    do: str = ""  # what the probe does, see probe.py
    signals: tuple[str, ...] = ()  # for the launcher, once all workers run
    workers: int = 2  # that are waited for before
    program: str = "torchrun"  # or "launch", torch.distributed.launch
    reads_script: bool = False  # the probe is on stdin

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text)

    def __str__(self) -> str:
        before = "".join(f"{name}={value} " for name, value in self.environ.items())
        return f"{before}{self.program} {self.text}" + (f" [{self.do}]" if self.do else "")
