"""Launchers of one job, each torchrun or spawnlaunch, and what becomes of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.support.launching import clean_environ
from tests.support.ports import free_port
from tests.support.processes import everybody, until

TORCHRUN, SPAWNLAUNCH = "torchrun", "spawnlaunch"
MODULES = {TORCHRUN: "torch.distributed.run", SPAWNLAUNCH: "spawnlaunch"}
LIMIT_S = 45.0  # after the trouble; whoever has not ended then waits for something


class Outcome(NamedTuple):
    """What came of a case. Right is what a user would want, as far as it can be had."""

    words: str
    seconds: float  # from the trouble to the end of all
    is_right: bool


class Job:
    """The launchers of a job. What they and their workers say is in files below a directory."""

    def __init__(self, program: str, directory: Path) -> None:
        self.program, self.directory = program, directory
        self.endpoint = f"127.0.0.1:{free_port()}"
        self.launchers: dict[str, subprocess.Popen[bytes]] = {}

    def start(
        self, name: str, *words: object, shell: str = "", within: Sequence[str] = (),
        preexec: Callable[[], object] | None = None, stdin: int | None = subprocess.DEVNULL,
        **environ: str,
    ) -> None:  # fmt: skip
        """A launcher, which runs `shell` in its workers where that is given."""
        last = ("--no-python", "sh", "-c", shell) if shell else ()
        program = (sys.executable, "-m", MODULES[self.program])
        self.command(
            name, *within, *program, *words, *last, preexec=preexec, stdin=stdin, **environ
        )

    def command(
        self, name: str, *command: object, preexec: Callable[[], object] | None = None,
        stdin: int | None = subprocess.DEVNULL, **environ: str,
    ) -> None:  # fmt: skip
        scratch = self.directory / "tmp"
        scratch.mkdir(exist_ok=True)
        given = {"TMPDIR": str(scratch), "GLOO_SOCKET_IFNAME": "lo", **environ}
        with (self.directory / f"{name}.txt").open("wb") as out:
            self.launchers[name] = subprocess.Popen(
                [str(word) for word in command], stdin=stdin, stdout=out, stderr=out,
                cwd=self.directory, preexec_fn=preexec, env=clean_environ(**given),
            )  # fmt: skip

    def gang(
        self, name: str, nnodes: object, *words: object, shell: str = "", **more: object
    ) -> None:
        """One of several nodes; `is_host` is who has the hub, or torchrun's store."""
        is_host = f"is_host={int(name == 'a')}"
        meet = ("--rdzv-backend", "c10d", "--rdzv-endpoint", self.endpoint, "--rdzv-id", "7")
        flags = ("--nnodes", nnodes, *meet, "--rdzv-conf", is_host)
        self.start(name, *flags, *words, shell=shell, **more)  # type: ignore[arg-type]

    def said(self, name: str) -> str:
        return (self.directory / f"{name}.txt").read_text(errors="replace")

    def wait_for(self, name: str, word: str, count: int = 1) -> None:
        one = self.launchers[name]
        until(
            lambda: self.said(name).count(word) >= count or one.poll() is not None,
            f"{self.program} {name} says {word}", 200,
        )  # fmt: skip

    def ends(self, *names: str, since: float | None = None) -> tuple[dict[str, int | None], float]:
        """The statuses of launchers; None of one that goes on. And when the last has ended."""
        since = time.monotonic() if since is None else since
        launchers = {name: self.launchers[name] for name in names or self.launchers}
        while any(one.poll() is None for one in launchers.values()):
            if time.monotonic() > since + LIMIT_S:
                break
            time.sleep(0.05)
        return {name: one.poll() for name, one in launchers.items()}, time.monotonic() - since

    def clear(self) -> None:
        """Nobody is left."""
        for one in self.launchers.values():
            for pid in everybody(one.pid) if one.poll() is None else ():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            one.wait()


Case = Callable[[Job], Outcome]
CASES: dict[str, Case] = {}


def case(name: str) -> Callable[[Case], Case]:
    return lambda function: CASES.setdefault(name, function)


def in_words(statuses: dict[str, int | None]) -> str:
    """`a 2, b waits`"""
    return ", ".join(
        f"{name} {'goes on' if status is None else status}" for name, status in statuses.items()
    )
