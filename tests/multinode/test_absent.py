"""Launchers that will not come: the others hear of it, and end with the same status and words.

Real launchers on loopback, as users start them. Where nothing would end them, they wait for a day.
"""

from __future__ import annotations

import os
import socket
import sys

import pytest

from tests.multinode.launchers import SAY, Launchers, is_listening
from tests.support.launching import LAUNCHER
from tests.support.matrix import mostly_full
from tests.support.patience import PATIENCE_S
from tests.support.processes import children, until

FAILS = "no_such_module_of_ours"


def flags(node_rank: int, *more: object, nnodes: object = 3) -> tuple[object, ...]:
    conf = f"join_timeout=86400,is_host={int(node_rank == 0)}"
    return ("--nnodes", nnodes, "--node-rank", node_rank, "--rdzv-conf", conf, *more)


# How a launcher fails before it joins: what is typed behind its flags, and some of what all say.
WAYS = {
    "no script": (("no-such-script.py",), "script 'no-such-script.py' not found"),
    "a value that is none": (("--grace", "x", SAY), "--grace"),
    "no GPU": (("--nproc", "gpu", SAY), "no GPU is visible"),
    "a rank that is none": (("--node-rank", "7", SAY), "cannot"),
    "an import": (("--preload", FAILS, SAY), FAILS),
    "another --max-restarts": (("--max-restarts", "3", SAY), "--max-restarts 3"),
}


OFTEN = [("no GPU", 0), ("an import", 1), ("another --max-restarts", 1)]
SELDOM = {(way, who) for way in WAYS for who in (0, 1)} - {*OFTEN}


@pytest.mark.parametrize(("way", "who"), mostly_full([*OFTEN, *sorted(SELDOM)], len(OFTEN)))
def test_one_that_cannot_take_part_ends_all(launchers: Launchers, way: str, who: int) -> None:
    """At the node that has the hub, and at another."""
    words, said = WAYS[way]
    for node_rank in {0, 1, 2} - {who}:
        launchers.start(f"{node_rank}", *flags(node_rank), SAY, "wait")
    for one in list(launchers.processes.values()):
        until(lambda one=one: children(one.pid), "it has a guard")  # type: ignore[misc]
    if who:
        until(lambda: is_listening(launchers.endpoint), "the hub listens")
    launchers.start(f"{who}", *flags(who), *words)
    if way == "another --max-restarts" and who == 0:
        said = "--max-restarts 0, the hub 3"
    assert launchers.statuses() == {"0": 2, "1": 2, "2": 2}
    for name in launchers.processes:
        assert said in launchers.said(name), name
    assert not launchers.workers()


# It is told to end, or finds that a module of ours is missing, as that is imported; or the guard
# fails before it has joined.
BROKEN = """
import os, signal, sys
from spawnlaunch.__main__ import take_process
blocked = take_process()
from spawnlaunch import entry

class Finder:
    def find_spec(name, *_):
        if name == "spawnlaunch.{module}":
            {then}

sys.meta_path.insert(0, Finder)
sys.exit(entry.main(blocked))
"""
KILLS = "sys.meta_path.remove(Finder); os.kill(os.getpid(), signal.{})".format
RAISES = "raise ModuleNotFoundError(name)"


@pytest.mark.parametrize(
    ("who", "module", "then", "own", "others"),
    mostly_full(
        [
            (0, "binding.plan", KILLS("SIGHUP"), -1, 129),
            (1, "run.preload", RAISES, os.EX_SOFTWARE, os.EX_SOFTWARE),
            (1, "cli.flags", KILLS("SIGTERM"), -15, 143),
            (0, "binding.plan", RAISES, os.EX_OSERR, os.EX_OSERR),
        ],
        2,
    ),
)
def test_one_that_ends_wherever_before_it_joins_ends_all(
    launchers: Launchers, who: int, module: str, then: str, own: int, others: int
) -> None:
    code = BROKEN.format(module=module, then=then)
    for rank in range(2):
        command = (sys.executable, "-c", code) if rank == who else LAUNCHER
        image = ("--preload", "json") if module == "run.preload" else ()
        launchers.start(f"{rank}", *flags(rank, *image, nnodes=2), SAY, "wait", command=command)
    assert launchers.statuses() == {f"{who}": own, f"{1 - who}": others}


@pytest.mark.parametrize("way", mostly_full(["another --max-restarts", "no script"]))
def test_in_a_pod_it_is_named_and_waited_for(launchers: Launchers, way: str) -> None:
    """As the pod is started again."""
    pod = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
    words, said = WAYS[way]
    launchers.start("0", *flags(0, nnodes=2), SAY, **pod)
    launchers.start("1", *flags(1, nnodes=2), *words, **pod)
    until(lambda: said in launchers.said("0"), "it is named")
    assert launchers.processes["1"].wait(PATIENCE_S) == 2
    launchers.start("1 again", *flags(1, nnodes=2), SAY, **pod)
    assert launchers.statuses() == {"0": 0, "1": 2, "1 again": 0}


def test_without_others_nobody_is_looked_for(launchers: Launchers) -> None:
    """An error of a launch on one node is told to nobody, though an endpoint is there."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        port = listener.getsockname()[1]
        launchers.start("0", "--nnodes", 1, "no-such-script.py", through=port)
        assert launchers.statuses() == {"0": 2}
        with pytest.raises(BlockingIOError):
            listener.accept()
