"""Can the other nodes reach this one by its name? gloo takes the address of the host's own name.

Many distributions map the host's name to 127.0.1.1, and some clusters to an interface that is not
there: then the ranks of other nodes never arrive. The interface that leads to MASTER_ADDR is the
one to use, and it is known where the route to it is.
"""

from __future__ import annotations

import _socket as socket  # its module socket is slow to import: see ports
from contextlib import closing

from spawnlaunch.records import NamedTuple
from spawnlaunch.world.facts import Environ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from spawnlaunch.world import World

INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
SIOCGIFCONF = 0x8912  # netdevice(7): all IPv4 addresses, the second of an interface as well
MOST_ADDRESSES = 1024
NAME_BYTES = 16  # IFNAMSIZ
IFREQ_BYTES = 40  # sizeof(struct ifreq)


class Advice(NamedTuple):
    """What this node's launcher adds to its workers' environment, and says."""

    exports: dict[str, str]
    warnings: tuple[str, ...]


def advise(world: World, environ: Environ, hostname: str) -> Advice:
    """Look at this node's name and at the route to rank 0; only where there are several nodes."""
    alone = world.world_size == world.local_world_size
    if alone or all(environ.get(name) for name in INTERFACES):
        return Advice({}, ())
    here = interfaces()
    trap = _trap(hostname, set(here))
    if trap is None:
        return Advice({}, ())
    name = _interface_towards(world.master_addr, here)
    if name is None:
        lines = " ".join(f"{variable}=INTERFACE" for variable in INTERFACES)
        names = ", ".join(sorted(set(here.values()) - {""}))
        return Advice({}, (f"{trap}; type export {lines}, one of: {names}",))
    exports = {variable: name for variable in INTERFACES if not environ.get(variable)}
    said = " ".join(f"{variable}={value}" for variable, value in exports.items())
    return Advice(exports, (f"{trap}; set {said}, the interface towards {world.master_addr}",))


def _trap(hostname: str, addresses: set[str]) -> str | None:
    """What is wrong with the address of this host's name, if anything."""
    found = resolve(hostname)
    if not found and resolve(hostname, socket.AF_INET6):
        return None  # of the interfaces, only IPv4 addresses are known here
    if not found:
        return f"host name {hostname} has no address, so other nodes may not reach this one"
    if all(address.startswith("127.") for address in found):
        return f"host name {hostname} is {found[0]}, which other nodes cannot reach"
    if not addresses & set(found):
        return f"host name {hostname} is {found[0]}, which is no interface of this machine"
    return None


def resolve(name: str, family: int = socket.AF_INET) -> list[str]:
    """The IPv4 addresses of a name; none where it has none, or can be no name."""
    try:
        infos = socket.getaddrinfo(name, None, family, socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return [str(info[4][0]) for info in infos]


def _interface_towards(host: str, here: dict[str, str]) -> str | None:
    """The interface with our address on the route to a host; None where it is not certain."""
    found = resolve(host)
    if not found or found[0].startswith("127."):
        return None
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        try:
            probe.connect((found[0], 9))  # chooses a route, and sends nothing: udp(7)
        except OSError:
            return None
        source = probe.getsockname()[0]
    return here.get(source) or None


def interfaces() -> dict[str, str]:
    """The interface of every IPv4 address of this machine, loopback aside; "" where two have it."""
    from array import array
    from fcntl import ioctl
    from struct import pack, unpack

    answers = array("B", bytes(MOST_ADDRESSES * IFREQ_BYTES))
    request = pack("iP", len(answers), answers.buffer_info()[0])  # struct ifconf
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as any_socket:
        try:
            length, _ = unpack("iP", ioctl(any_socket.fileno(), SIOCGIFCONF, request))
        except OSError:
            return {}  # no Linux
    found: dict[str, str] = {}
    for start in range(0, length, IFREQ_BYTES):
        answer = answers[start : start + IFREQ_BYTES].tobytes()
        label, address = answer[:NAME_BYTES].partition(b"\0")[0], socket.inet_ntoa(answer[20:24])
        if not address.startswith("127."):
            name = label.partition(b":")[0].decode(errors="replace")
            found[address] = name if found.get(address, name) == name else ""
    return found


def is_this_machine(host: str) -> bool:
    """Whether an address of the host is one of this machine's."""
    ours = interfaces()
    return any(address.startswith("127.") or address in ours for address in resolve(host))
