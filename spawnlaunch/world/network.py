"""Can the other nodes reach this one by its name? gloo takes the address of the host's own name.

Many distributions map the host's name to 127.0.1.1, and some clusters to an interface that is not
there: then the ranks of other nodes never arrive. The interface that leads to MASTER_ADDR is the
one to use, and it is known where the route to it is.
"""

import _socket as socket  # its module socket is slow to import: see ports
from contextlib import closing
from typing import NamedTuple

from spawnlaunch.world.facts import Environ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from spawnlaunch.world import World

INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
SIOCGIFADDR = 0x8915  # netdevice(7): the IPv4 address of an interface
NAME_BYTES = 16  # IFNAMSIZ
IFREQ_BYTES = 40  # sizeof(struct ifreq)


class Advice(NamedTuple):
    """What this node's launcher adds to its workers' environment, and says."""

    exports: dict[str, str]
    warnings: tuple[str, ...]


def advise(world: "World", environ: Environ, hostname: str) -> Advice:
    """Look at this node's name and at the route to rank 0; only where there are several nodes."""
    alone = world.world_size == world.local_world_size
    if alone or all(environ.get(name) for name in INTERFACES):
        return Advice({}, ())
    here = interfaces()
    trap = _trap(hostname, set(here.values()))
    if trap is None:
        return Advice({}, ())
    name = _interface_towards(world.master_addr, here)
    if name is None:
        lines = " ".join(f"{variable}=INTERFACE" for variable in INTERFACES)
        return Advice({}, (f"{trap}; type export {lines}, one of: {', '.join(sorted(here))}",))
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
    names = [name for name, address in here.items() if address == source]
    return names[0] if len(names) == 1 else None


def interfaces() -> dict[str, str]:
    """The IPv4 address of every interface that has one, loopback aside."""
    from fcntl import ioctl

    found = {}
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as any_socket:
        for _, name in socket.if_nameindex():
            request = name.encode()[: NAME_BYTES - 1].ljust(IFREQ_BYTES, b"\0")
            try:
                answer = ioctl(any_socket.fileno(), SIOCGIFADDR, request)
            except OSError:
                continue  # no IPv4 address
            address = socket.inet_ntoa(answer[20:24])
            if not address.startswith("127."):
                found[name] = address
    return found


def is_this_machine(host: str) -> bool:
    """Whether an address of the host is one of this machine's."""
    ours = set(interfaces().values())
    return any(address.startswith("127.") or address in ours for address in resolve(host))
