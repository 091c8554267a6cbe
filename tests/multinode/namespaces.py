"""Nodes that are network namespaces of this machine, with cables that can be cut."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def ip(*words: str, check: bool = True) -> str:
    done = subprocess.run(("ip", *words), check=check, capture_output=True, text=True)
    return done.stdout


def may_make_namespaces() -> bool:
    if os.geteuid() != 0 or not shutil.which("ip"):
        return False
    name = f"sl{os.getpid()}t"
    made = subprocess.run(("ip", "netns", "add", name), capture_output=True).returncode == 0
    ip("netns", "delete", name, check=False)
    return made


class Network:
    """Nodes of one letter each, with an address, and a bridge between them."""

    def __init__(self, hosts: str) -> None:
        self.hosts = hosts
        self.mark = f"sl{os.getpid()}"
        self.bridge = f"{self.mark}br"
        ip("netns", "add", self.bridge)  # the switch has a namespace of its own
        ip("-n", self.bridge, "link", "add", "name", "br0", "type", "bridge")
        ip("-n", self.bridge, "link", "set", "dev", "br0", "up")
        for host in hosts:
            name = f"{self.mark}{host}"
            ip("netns", "add", name)
            ip("-n", name, "link", "add", "name", "eth", "type", "veth", "peer", "name", host,
               "netns", self.bridge)  # fmt: skip
            ip("-n", self.bridge, "link", "set", "dev", host, "master", "br0", "up")
            ip("-n", name, "addr", "add", f"{self.address(host)}/24", "dev", "eth")
            ip("-n", name, "link", "set", "dev", "eth", "up")
            ip("-n", name, "link", "set", "dev", "lo", "up")

    def address(self, host: str) -> str:
        return f"10.9.8.{self.hosts.index(host) + 1}"

    def within(self, host: str, name: str = "") -> tuple[str, ...]:
        """What stands in front of a command on a node, which may have a host name of its own."""
        rename = ("unshare", "--uts", "--", "sh", "-c", 'hostname "$0" && exec "$@"', name)
        return ("ip", "netns", "exec", f"{self.mark}{host}", *(rename if name else ()))

    def cut(self, host: str) -> None:
        ip("-n", self.bridge, "link", "set", "dev", host, "down")

    def mend(self, host: str) -> None:
        ip("-n", self.bridge, "link", "set", "dev", host, "up")

    def processes(self, host: str) -> list[int]:
        """All that run on a node."""
        return [int(pid) for pid in ip("netns", "pids", f"{self.mark}{host}").split()]

    def kill(self, host: str) -> None:
        """End all that run on a node, at once."""
        for pid in self.processes(host):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def remove(self) -> None:
        for host in self.hosts:
            with suppress(subprocess.CalledProcessError):
                self.kill(host)
        for host in (*self.hosts, "br"):
            ip("netns", "delete", f"{self.mark}{host}", check=False)


@contextmanager
def network_of(hosts: str) -> Iterator[Network]:
    """A network for a test, which is skipped where there can be none."""
    import pytest  # which benchmarks do without

    if not may_make_namespaces():
        pytest.skip("needs root and ip netns (Debian: apt install iproute2)")
    network = Network(hosts)
    try:
        yield network
    finally:
        network.remove()
