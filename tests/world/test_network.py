"""Which addresses are this machine's: all of every interface."""

import json
from typing import Any

import pytest

from spawnlaunch.world import host
from tests.support.launching import LAUNCHER, REPORTER, clean_environ, run
from tests.support.required import require_programs, require_root
from tests.world.resolving import resolve

require_programs("unshare", "ip", package="util-linux iproute2")
require_root()

INTERFACE = (
    "ip link set lo up; ip link add fabric type bridge; ip link set fabric up;"
    "ip address add 10.9.8.1/24 dev fabric; ip address add 10.9.8.2/24 dev fabric;"
    "ip address add 10.9.8.3/32 dev fabric label fabric:3;"
)


def on_a_machine_called(name: str, *flags: str, **environ: str) -> dict[str, Any]:
    """What --explain=json says on a machine with several addresses on one interface."""
    command = " ".join([*LAUNCHER, "--explain=json", *flags, str(REPORTER)])
    done = run(
        "unshare",
        "--net",
        "--uts",
        "sh",
        "-ec",
        f"{INTERFACE} hostname {name}; {command}",
        environ=clean_environ(**environ),
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


FIRST_OF_TWO = ("--nnodes=2", "--node-rank=0", "--master-addr=10.9.8.2")


@pytest.mark.parametrize("address", ["10.9.8.1", "10.9.8.2", "10.9.8.3"])
def test_every_address_of_an_interface_is_this_machines(address: str) -> None:
    assert on_a_machine_called(address, *FIRST_OF_TWO)["warnings"] == []
    found = on_a_machine_called("localhost", MASTER_ADDR=address)
    assert (found["world"]["master_addr"], found["warnings"]) == (address, [])


@pytest.mark.parametrize("chosen", ["", *host.INTERFACES])
def test_of_another_address_the_interface_is_exported_unless_somebody_chose_one(
    chosen: str,
) -> None:
    found = on_a_machine_called("10.9.8.9", *FIRST_OF_TWO, **({chosen: "x"} if chosen else {}))
    (said,) = found["warnings"]
    assert said.startswith("host name 10.9.8.9 is 10.9.8.9,")
    (worker,) = found["workers"]
    exported = {name: worker["env"].get(name) for name in host.INTERFACES}
    assert exported == {name: None if name == chosen else "fabric" for name in host.INTERFACES}


def test_a_machine_that_is_named_by_its_address_is_not_another() -> None:
    assert not host.is_here("192.0.2.1", "192.0.2.2")
    assert host.is_here("192.0.2.1", "192.0.2.1")
    assert host.is_here("node1.cluster", "node1")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("localhost", "is 127.0.0.1, which other nodes cannot reach"),
        ("node.invalid", "has no address, so other nodes may not reach this one"),
        ("192.0.2.1", "is 192.0.2.1, which is not an interface of this machine"),
    ],
)
def test_a_host_name_by_which_others_do_not_reach_this_machine_is_named(
    name: str, why: str
) -> None:
    world = resolve("--nnodes=2 --node-rank=1 --master-addr=127.0.0.2", {}).world
    _, (line,) = host.find_interface(world, {}, name)
    assert line.startswith(f"host name {name} {why}; ")
