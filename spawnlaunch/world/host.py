"""This machine in the network: a port for rank 0, and a name by which other nodes can reach it.

A port that was free when it was chosen can be in use when rank 0 listens on it, for two reasons.
The kernel gives ports of its ephemeral range to any outgoing connection: so none of those is
chosen. And a second launch may choose at the same moment: so a launch that has chosen a port
holds a lock named after it, an abstract Unix socket, until its process ends. Such a socket lives
in the network namespace, as ports do, and leaves nothing in the file system (unix(7)). It listens,
so that the kernel tells which user has it: another user's socket of that name blocks no port.

gloo uses the address of the host's own name. Many distributions map that name to 127.0.1.1, and
some clusters to an interface that does not exist: then the ranks of other nodes never connect. The
interface on the route to MASTER_ADDR is the one to use.
"""

from __future__ import annotations

import _socket as socket  # the module socket adds enums and selectors, 5 ms of every launch
import errno
import sys
from contextlib import suppress

from spawnlaunch.base import errors, machine, records, say
from spawnlaunch.node import proc
from spawnlaunch.world import identity, master

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

EPHEMERAL = "/proc/sys/net/ipv4/ip_local_port_range"  # ip(7)

INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
SIOCGIFCONF = 0x8912  # netdevice(7): all IPv4 addresses, the second of an interface as well
MOST_ADDRESSES = 1024
NAME_BYTES = 16  # IFNAMSIZ
MOST_OF_A_NAME = 64  # addresses of one name
IFREQ_BYTES = 40  # sizeof(struct ifreq)
BACKLOG = 1024  # other processes may connect so often to learn the owner; nothing accepts these
LISTENS_S = 0.01  # seconds within which a process that has bound a name listens


class LockedPort(records.NamedTuple):
    """A port that no other launch on this machine chooses while `lock` is open."""

    port: int
    lock: Any  # a socket


def listen(resolution: identity.Resolution) -> tuple[identity.Resolution, LockedPort]:
    """Hold the port of rank 0, which listens on this machine, or a free port.

    Raises UsageError where the port is in use and cannot be replaced by another one.
    """
    world, fact = resolution.world, resolution.sources["master_addr"]
    if (
        world.has_several_nodes
        and fact.source == "MASTER_ADDR"
        and not _is_local_address(fact.value)
    ):
        line = (
            f"MASTER_ADDR={fact.value} is not an address of this machine, where rank 0 listens; "
            "unless something between forwards to it, use --master-addr HOST"
        )
        resolution = resolution.with_notices(say.JOB, line)
    port = resolution.world.master_port
    if port == master.FREE:
        return _with_free_port(resolution, "local mode")
    locked_port = hold_port(port)
    if locked_port is None:
        source = resolution.sources["master_port"].source
        is_standalone = resolution.sources["mode"].source == "--standalone"
        if is_standalone or (source == "MASTER_PORT" and not resolution.world.has_several_nodes):
            line = f"{source} {port} is in use on this machine: another port is taken"
            resolution = resolution.with_notices(say.JOB, line)
            return _with_free_port(resolution, f"{source} {port} is in use")
        raise errors.UsageError(_in_use(resolution, port))
    return resolution, locked_port


def _in_use(resolution: identity.Resolution, port: int) -> str:
    """Return the error for a port in use; in a step the other tasks then wait for rank 0."""
    world, source = resolution.world, resolution.sources["master_port"].source
    line = (
        f"port {port} ({source}) is in use on this machine, by {proc.describe_listener(port)}, so "
        "rank 0 cannot listen there; end what uses it, or use --master-port N"
    )
    if world.mode == identity.TASK and world.world_size > 1:
        line += (
            f" on all; the {world.world_size - 1} other tasks wait for rank 0 until they are "
            "ended, by srun if it has --kill-on-bad-exit=1"
        )
    return line


def renew_port(
    resolution: identity.Resolution, environ: identity.Environ
) -> tuple[identity.Resolution, LockedPort | None]:
    """Choose another port for a restart on one machine, unless the user named the port.

    The process that listened on the old port may not have ended yet. The caller still has the old
    LockedPort, so that its port is not chosen again: it is released when its LockedPort is freed.
    Raises UsageError where no port is free.
    """
    if identity.is_named(resolution.sources["master_port"], environ):
        return resolution, None
    return _with_free_port(resolution, "restart")


def _with_free_port(
    resolution: identity.Resolution, why: str
) -> tuple[identity.Resolution, LockedPort]:
    locked_port = hold_free_port()
    why = f"free port outside the ephemeral range ({why})"
    fact = resolution.sources["master_port"]._replace(value=locked_port.port, source=why)
    world, sources = resolution.world, {**resolution.sources, "master_port": fact}
    return resolution._replace(
        world=world._replace(master_port=locked_port.port), sources=sources
    ), locked_port


def check_address(resolution: identity.Resolution) -> identity.Resolution:
    """Replace a rank 0 address that is not this machine's, where all ranks run on this machine.

    Each of several tasks does so, and all come to the same address.
    """
    fact = resolution.sources["master_addr"]
    if _is_local_address(fact.value):
        return resolution
    is_known = addresses(fact.value, socket.AF_UNSPEC)
    why = "is another machine's" if is_known else "has no address here"
    why += f", and all workers are on this {'one' if is_known else 'machine'}"
    mark = "=" if fact.source in resolution.environ else " "
    line = f"replaced {fact.source}{mark}{fact.value}, which {why}"
    others = [each for each in fact.rejected if each.value != master.LOOPBACK]
    fact = identity.Fact(
        master.LOOPBACK,
        "all ranks are on this machine",
        (identity.Rejected(fact.value, fact.source, why), *others),
    )
    return resolution._replace(
        world=resolution.world._replace(master_addr=fact.value),
        sources={**resolution.sources, "master_addr": fact},
    ).with_notices(say.JOB, line)


def _is_local_address(name: str) -> bool:
    """Whether at least one address of a name belongs to this machine."""
    known = addresses(name, socket.AF_UNSPEC)
    return any(each.startswith("127.") or is_of_this_machine(each) for each in known)


def hold_free_port(seed: int | None = None) -> LockedPort:
    """Choose a free TCP port and hold it against other launches; `seed` says where to begin.

    Raises UsageError where every candidate is taken.
    """
    if seed is None:
        seed = int.from_bytes(machine.urandom(4), "little")
    try:
        low, high = map(int, machine.content(EPHEMERAL).split())
    except OSError:  # the ephemeral range is unknown
        low, high = 0, -1
    for counts_others in (True, False):  # another user may have bound the names of all ports
        for port in candidates(low, high, seed):
            locked_port = hold_port(port, counts_others)
            if locked_port is not None:
                return locked_port
    raise errors.UsageError("found no free port for MASTER_PORT; end what listens on this machine")


def candidates(low: int, high: int, seed: int) -> Iterator[int]:
    """Yield ports outside the ephemeral range `low` to `high`, in the order to try them.

    After CHOSEN_PORTS come COMPUTED_PORTS and all unprivileged ones. A site may have made the
    ephemeral range so wide that it contains all of these: so CHOSEN_PORTS come once more at the
    end, whether in the range or not.
    """
    for ports in (master.CHOSEN_PORTS, master.COMPUTED_PORTS, range(1024, 65536)):
        first = seed % len(ports)
        for port in (*ports[first:], *ports[:first]):
            if not low <= port <= high:
                yield port
    yield from master.CHOSEN_PORTS


def claim(name: str, counts_others: bool = False) -> Any | None:
    """Return a socket that holds an abstract name (unix(7)) against this user's other processes.

    None: one of them has the name, or, with `counts_others`, a process of another user. Without
    `counts_others` another user's socket is ignored, as any user can bind any name: then the socket
    that is returned has no name, as in a sandbox.
    """
    lock = None
    try:
        lock = machine.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        lock.bind(name)
        lock.listen(BACKLOG)  # a process that finds the name taken asks whose it is
    except OSError as error:
        if error.errno == errno.EADDRINUSE and (counts_others or _is_of_this_user(name)):
            return None
    return lock or machine.socket(socket.AF_INET, socket.SOCK_STREAM)


def _is_of_this_user(name: str) -> bool:
    """Whether a process of this user has an abstract name."""
    for _ in range(2):  # that process may have bound the name, and not listen yet
        with suppress(OSError):
            connection, _, uid = machine.connect_local(name)
            connection.close()
            return bool(uid == machine.geteuid())
        machine.sleep(LISTENS_S)
    return False


def hold_port(port: int, counts_others: bool = False) -> LockedPort | None:
    """Hold this port against other launches; None where one holds it, or a process listens on it.

    Raises OSError where this process may not listen. `counts_others`: see `claim`.
    """
    probe = machine.socket(socket.AF_INET, socket.SOCK_STREAM)
    lock = probe
    if sys.platform == "linux":  # the only system with abstract sockets
        lock = claim(f"\0spawnlaunch-port-{port}", counts_others)
        if lock is None:
            probe.close()
            return None
    try:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # TIME_WAIT does not matter
        probe.bind(("", port))
        probe.listen(1)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    finally:
        probe.close()
    return LockedPort(port, lock)


def find_interface(
    world: identity.World, environ: identity.Environ, hostname: str
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return variables and warnings for this node, where other nodes cannot reach its host name.

    For launches on several nodes, and only where the user has not chosen an interface.
    """
    if all(environ.get(name) for name in INTERFACES):
        return {}, ()
    trap = _find_trap(hostname)
    if trap is None:
        return {}, ()
    here = _interfaces()
    name = _interface_towards(world.master_addr, here)
    if name is None:
        lines = " ".join(f"{variable}=INTERFACE" for variable in INTERFACES)
        names = ", ".join(sorted(set(here.values()) - {""}))
        return {}, (f"{trap}; export {lines}, one of: {names}",)
    exports = {variable: name for variable in INTERFACES if not environ.get(variable)}
    line = " ".join(f"{variable}={value}" for variable, value in exports.items())
    return exports, (f"{trap}; set {line}, the interface towards {world.master_addr}",)


def _find_trap(hostname: str) -> str | None:
    """Return what is wrong with the address of this host's name, or None."""
    known = addresses(hostname)
    if not known and addresses(hostname, socket.AF_INET6):
        return None  # `_interfaces` knows IPv4 addresses only
    if not known:
        return f"host name {hostname} has no address, so other nodes may not reach this one"
    if all(address.startswith("127.") for address in known):
        return f"host name {hostname} is {known[0]}, which other nodes cannot reach"
    if not any(is_of_this_machine(address) for address in known if not address.startswith("127.")):
        return f"host name {hostname} is {known[0]}, which is not an interface of this machine"
    return None


def addresses(name: str, family: int = socket.AF_INET) -> list[str]:
    """The addresses of a name; an empty list where it has none, or is not a valid name.

    Process 1 of a container has signal handlers in Python, which would wait until getaddrinfo
    returns: there a child looks the name up.
    """
    if machine.getpid() != 1:
        return _addresses(name, family)
    from spawnlaunch.world import lookup

    try:
        return list(lookup.Lookup(lambda: _addresses(name, family)[:MOST_OF_A_NAME]).answer())
    except OSError:
        return []


def _addresses(name: str, family: int) -> list[str]:
    try:
        infos = machine.getaddrinfo(name, None, family, socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return [str(info[4][0]) for info in infos]


def is_here(name: str, hostname: str) -> bool:
    """Whether a name is this machine's host name, or has an address of one of its interfaces.

    Name servers may not know the name of a pod yet, so the names are compared first.
    """
    is_address = name.replace(".", "").isdigit()  # its part before the first dot is no host name
    if name == hostname or (
        not is_address and name.partition(".")[0] == hostname.partition(".")[0]
    ):
        return True
    return any(map(is_of_this_machine, addresses(name, socket.AF_UNSPEC)))


def is_of_this_machine(address: str) -> bool:
    """Whether an address is this machine's: a socket can bind no other (ip(7))."""
    try:
        probe = machine.socket(
            socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM
        )
    except OSError:  # a kernel without IPv6
        return False
    try:
        probe.bind((address, 0))
    except OSError:
        return False
    finally:
        probe.close()
    return address not in ("0.0.0.0", "::")


def _interface_towards(host: str, here: dict[str, str]) -> str | None:
    """The interface on the route to a host, by its IPv4 address; None where it is not certain."""
    known = addresses(host)
    if not known or known[0].startswith("127."):
        return None
    probe = machine.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        probe.connect((known[0], 9))  # chooses a route, and sends nothing: udp(7)
        return here.get(probe.getsockname()[0]) or None
    except OSError:
        return None
    finally:
        probe.close()


def _interfaces() -> dict[str, str]:
    """The interface by IPv4 address, without loopback; "" where two interfaces have the address."""
    from array import array
    from struct import pack, unpack

    answers = array("B", bytes(MOST_ADDRESSES * IFREQ_BYTES))
    request = pack("iP", len(answers), answers.buffer_info()[0])  # struct ifconf
    any_socket = machine.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        length, _ = unpack("iP", machine.ioctl(any_socket.fileno(), SIOCGIFCONF, request))
    except OSError:
        return {}  # no Linux
    finally:
        any_socket.close()
    known: dict[str, str] = {}
    for start in range(0, length, IFREQ_BYTES):
        answer = answers[start : start + IFREQ_BYTES].tobytes()
        label, address = answer[:NAME_BYTES].partition(b"\0")[0], socket.inet_ntoa(answer[20:24])
        if not address.startswith("127."):
            name = label.partition(b":")[0].decode(errors="replace")
            known[address] = name if known.get(address, name) == name else ""
    return known
