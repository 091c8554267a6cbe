"""Ports at which something is told to listen that is started later."""

from spawnlaunch.world.host import hold_free_port


def free_port() -> int:
    """One at which nobody listens, and which the kernel gives to no connection meanwhile.

    An ephemeral one may be given to what connects to it before anybody listens: then it has
    connected to itself, and both wait for ever.
    """
    held = hold_free_port()
    held.lock.close()
    return held.port
