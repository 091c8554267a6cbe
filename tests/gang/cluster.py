"""Real launches on nodes that are namespaces: what their launchers say, and how they end."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

from tests.gang.namespaces import Network
from tests.support.launching import ROOT, clean_environ
from tests.support.patience import PATIENCE_S
from tests.support.processes import children, until

PORT = 29400
# What a node says at its end: the hub's of a failure, and any of anything else.
ENDS = re.compile(r"^spawnlaunch: (?:failed first.*?: |\S+: exits with status \d+, as )(.*)$", re.M)
# What is not known before.
MORE = re.compile(r" after [\d.]+ s| \(pid \d+\)")


class Cluster:
    """One launch; node a has the hub."""

    def __init__(self, network: Network, directory: Path, *flags: str) -> None:
        self.network, self.directory, self.flags = network, directory, flags
        self.launchers: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, host: str, *words: str, name: str = "", **environ: str) -> None:
        """A launcher of a node; `words` are its own flags and its program."""
        endpoint = f"--rdzv-endpoint={self.network.address('a')}:{PORT}"
        command = (
            *self.network.within(host, name or f"node{host}"), sys.executable, "-m", "spawnlaunch",
            "--quiet", "--rdzv-backend=c10d", endpoint, *self.flags, *words,
        )  # fmt: skip
        with (self.directory / host).open("ab") as output:
            self.launchers[host] = subprocess.Popen(
                command, cwd=ROOT, stdout=output, stderr=output, stdin=subprocess.DEVNULL,
                env=clean_environ(GLOO_SOCKET_IFNAME="eth", OMP_NUM_THREADS="1", **environ),
            )  # fmt: skip

    def text(self, host: str) -> str:
        path = self.directory / host
        return path.read_text(errors="replace") if path.exists() else ""

    def texts(self) -> str:
        return "\n".join(f"--- {host}\n{self.text(host)}" for host in self.launchers)

    def wait_for(self, host: str, said: str, count: int = 1) -> None:
        """Until a node has so many lines with these words."""
        until(
            lambda: sum(said in line for line in self.text(host).splitlines()) >= count,
            f"{host} says {said!r}\n{self.texts()}",
            PATIENCE_S,
        )

    def statuses(self) -> dict[str, int]:
        """As a shell has them."""
        end = time.monotonic() + PATIENCE_S
        while any(each.poll() is None for each in self.launchers.values()):
            assert time.monotonic() < end, f"some launchers still run\n{self.texts()}"
            time.sleep(0.02)
        codes = {host: each.returncode for host, each in self.launchers.items()}
        return {host: code if code >= 0 else 128 - code for host, code in codes.items()}

    def why(self, host: str) -> str:
        """What a node says of the end of the launch."""
        found = ENDS.findall(self.text(host))
        return MORE.sub("", found[-1]) if found else ""

    def guards(self, host: str) -> list[int]:
        """The guard of a node whose workers have begun; none where the launch is over."""
        return children(self.launchers[host].pid)

    def workers(self, host: str) -> list[int]:
        return [worker for guard in self.guards(host) for worker in children(guard)]

    def nothing_left(self) -> None:
        """No process of the launch lives on any node."""
        for host in self.launchers:
            until(lambda h=host: not self.network.processes(h), f"nothing left on {host}")  # type: ignore[misc]
