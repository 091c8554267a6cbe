"""Ports at which something is told to listen that is started later."""

from spawnlaunch.world.host import hold_free_port


def free_ports(count: int) -> list[int]:
    """So many different ones at which nobody listens, none of them ephemeral.

    An ephemeral one may be given to what connects to it before anybody listens: then it has
    connected to itself, and both wait for ever.
    """
    held = [hold_free_port() for _ in range(count)]
    for each in held:
        each.lock.close()
    return [each.port for each in held]


def free_port() -> int:
    """The only one of ``free_ports``."""
    return free_ports(1)[0]
