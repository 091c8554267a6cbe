"""Launchers of several nodes, as a user starts them: all on this machine, and on loopback."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.launching import LAUNCHER, WORKERS, clean_environ
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port

SAY = WORKERS / "of_several.py"

QUIET = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}  # else said of each node


class Launchers:
    """Some launchers of one job, what they say in files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.endpoint = f"127.0.0.1:{free_port()}"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(
        self,
        name: str,
        *words: object,
        through: int = 0,
        backend: tuple[str, ...] = ("--rdzv-backend", "c10d"),
        command: Sequence[str] = LAUNCHER,
        **environ: str,
    ) -> None:
        """`through` is another port that leads to the endpoint."""
        endpoint = f"127.0.0.1:{through}" if through else self.endpoint
        place = ("--rdzv-endpoint", endpoint, *backend, "--quiet")
        with (
            (self.directory / f"{name}.out").open("wb") as out,
            (self.directory / f"{name}.err").open("wb") as err,
        ):
            self.processes[name] = subprocess.Popen(
                [*command, *place, *map(str, words)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=clean_environ(**{**QUIET, **environ}),
            )

    def said(self, name: str) -> str:
        return (self.directory / f"{name}.err").read_text()

    def workers(self, *names: str) -> list[dict[str, str]]:
        """What the workers of these launchers have printed, each its variables."""
        texts = [(self.directory / f"{name}.out").read_text() for name in names or self.processes]
        return [
            json.loads(line) for text in texts for line in text.splitlines() if line.endswith("}")
        ]

    def wait_for_workers(self, count: int, *names: str) -> list[dict[str, str]]:
        deadline = time.monotonic() + PATIENCE_S
        while len(found := self.workers(*names)) < count:
            assert time.monotonic() < deadline, {name: self.said(name) for name in self.processes}
            time.sleep(0.05)
        return found

    def statuses(self) -> dict[str, int]:
        return {name: one.wait(PATIENCE_S) for name, one in self.processes.items()}


def is_listening(endpoint: str) -> bool:
    """Without a connection, which would be a stranger's."""
    port = int(endpoint.partition(":")[2])
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)
