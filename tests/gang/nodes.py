"""Launchers of several nodes, as processes of a test, and what they say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
STARTED: list[subprocess.Popen[bytes]] = []  # of the present test


class Nodes:
    """Launchers of one test, on loopback unless they are in namespaces."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.directory = directory
        self.settings = {"join_s": 60, "last_call_s": 1, "grace_s": 5, **settings}
        self.endpoint = f"127.0.0.1:{free_port()}"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(
        self, host: str, *flags: str, command: str = "true", within: tuple[str, ...] = (),
        **environ: str,
    ) -> None:  # fmt: skip
        words = (
            *within, sys.executable, "-m", "tests.gang.driver", "--endpoint", self.endpoint,
            "--host", host, "--settings", json.dumps(self.settings), "--command", command, *flags,
        )  # fmt: skip
        with (self.directory / host).open("ab") as output:
            self.processes[host] = subprocess.Popen(
                words, cwd=ROOT, stdout=output, stderr=output, env={**os.environ, **environ}
            )
        STARTED.append(self.processes[host])

    def lines(self, host: str) -> list[dict[str, Any]]:
        path = self.directory / host
        read = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in read if line.startswith("{") and line[-1] == "\n"]

    def of(self, host: str, what: str) -> list[dict[str, Any]]:
        return [line for line in self.lines(host) if line["what"] == what]

    def hub_lines(self, host: str, begin: str) -> list[str]:
        """What a hub has told its user that begins so."""
        return [x["line"] for x in self.of(host, "hub line") if x["line"].startswith(begin)]

    def wait_for(self, host: str, what: str, count: int = 1, **like: Any) -> dict[str, Any]:
        """The last of so many lines of a launcher that are like this."""
        for _ in range(PATIENCE_S * 20):
            found = [x for x in self.of(host, what) if like.items() <= x.items()]
            if len(found) >= count:
                return found[count - 1]
            time.sleep(0.05)
        texts = {name: (self.directory / name).read_text() for name in self.processes}
        raise AssertionError(f"{host} never said {what} {like}: {texts}")

    def statuses(self) -> dict[str, int]:
        return {host: p.wait(PATIENCE_S) for host, p in self.processes.items()}
