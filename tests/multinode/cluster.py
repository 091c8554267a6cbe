"""Real launches on nodes that are namespaces: what their launchers say, and how they end."""

from __future__ import annotations

import re
from pathlib import Path

from tests.multinode.launchers import Launchers
from tests.multinode.namespaces import Network
from tests.support.launching import LAUNCHER
from tests.support.patience import PATIENCE_S
from tests.support.processes import children, until

PORT = 29400
# What a node says at its end: the hub's of a failure, and any of anything else.
ENDS = re.compile(r"^spawnlaunch: (?:failed first.*?: |\S+: exits with status \d+, as )(.*)$", re.M)
# What is not known before.
MORE = re.compile(r" after [\d.]+ s| \(pid \d+\)")


class Cluster(Launchers):
    """One launch, a launcher for each node; node a has the hub."""

    def __init__(self, network: Network, directory: Path, *flags: str) -> None:
        super().__init__(directory)
        self.network, self.flags = network, flags
        self.endpoint = f"{network.address('a')}:{PORT}"

    def start_on(self, host: str, *words: str) -> None:
        """A launcher of a node; `words` are its own flags and its program."""
        command = (*self.network.within(host, f"node{host}"), *LAUNCHER)
        environ = {"GLOO_SOCKET_IFNAME": "eth", "OMP_NUM_THREADS": "1"}
        self.start(host, *self.flags, *words, command=command, **environ)

    def text(self, host: str) -> str:
        """What its workers and its launcher have said."""
        paths = (self.directory / f"{host}.{end}" for end in ("out", "err"))
        return "".join(path.read_text(errors="replace") for path in paths if path.exists())

    def texts(self) -> str:
        return "\n".join(f"--- {host}\n{self.text(host)}" for host in self.processes)

    def wait_for(self, host: str, said: str) -> None:
        """Until a node has a line with these words."""
        until(lambda: said in self.text(host), f"{host} says {said!r}\n{self.texts()}", PATIENCE_S)

    def statuses(self) -> dict[str, int]:
        """As a shell has them."""
        codes = super().statuses()
        return {host: code if code >= 0 else 128 - code for host, code in codes.items()}

    def why(self, host: str) -> str:
        """What a node says of the end of the launch."""
        found = ENDS.findall(self.said(host))
        return MORE.sub("", found[-1]) if found else ""

    def guards(self, host: str) -> list[int]:
        """The guard of a node whose workers have begun; none where the launch is over."""
        return children(self.processes[host].pid)

    def workers_on(self, host: str) -> list[int]:
        return [worker for guard in self.guards(host) for worker in children(guard)]

    def nothing_left(self) -> None:
        """No process of the launch lives on any node."""
        for host in self.processes:
            until(lambda h=host: not self.network.processes(h), f"nothing left on {host}")  # type: ignore[misc]
