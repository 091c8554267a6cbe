"""Prove the ranks, and report: the sum of 2**rank over all workers, as prove.py does with torch.

Importing torch takes seconds of each worker. What it goes by are RANK, WORLD_SIZE, MASTER_ADDR and
MASTER_PORT: rank 0 listens there, and the others come.
"""

import os
import socket
import time

from tests.support.patience import PATIENCE_S
from tests.workers.reporting import report

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
PLACE = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def sum_of_all() -> int:
    """Told to each by rank 0."""
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    dual = family == socket.AF_INET6
    with socket.create_server(("", PLACE[1]), family=family, dualstack_ipv6=dual) as server:
        server.settimeout(PATIENCE_S)
        peers = [server.accept()[0] for _ in range(SIZE - 1)]
        total = 1 + sum(int(peer.makefile().readline()) for peer in peers)
        for peer in peers:
            peer.sendall(f"{total}\n".encode())
    return total


def sum_from_rank_0() -> int:
    ends_at = time.monotonic() + PATIENCE_S
    while True:
        try:
            peer = socket.create_connection(PLACE, timeout=PATIENCE_S)
        except OSError:  # it does not listen yet
            if time.monotonic() > ends_at:
                raise
            time.sleep(0.02)
        else:
            peer.sendall(f"{2**RANK}\n".encode())
            return int(peer.makefile().readline())


report(proved=(sum_from_rank_0() if RANK else sum_of_all()) == 2**SIZE - 1)
