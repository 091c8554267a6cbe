"""Where every question for a host's name is left without an answer. It takes root."""

import sys
from pathlib import Path

# A network and a file system where the name server listens, and never answers.
MUTE = """
set -e
ip link set lo up
mount --bind "$1" /etc/resolv.conf
mount --bind "$2" /etc/nsswitch.conf
shift 2
exec "$@"
"""
SERVER = "import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.bind(('127.0.0.1', 53))"


def within_mute_names(directory: Path) -> tuple[str, ...]:
    """The words to put before a command, which then runs there."""
    resolv, switch = directory / "resolv.conf", directory / "nsswitch.conf"
    resolv.write_text("nameserver 127.0.0.1\noptions timeout:30 attempts:5\n")
    switch.write_text("hosts: files dns\n")
    serve = f"{SERVER}; import os, sys; os.set_inheritable(s.fileno(), True)"
    return (
        "unshare", "--net", "--mount", "sh", "-c", MUTE, "sh", str(resolv), str(switch),
        sys.executable, "-c", f"{serve}; os.execvp(sys.argv[1], sys.argv[1:])",
    )  # fmt: skip
