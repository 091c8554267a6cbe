"""Addresses of rank 0: what is no host is refused, what is not here is replaced by what is."""

from __future__ import annotations

import re
import shlex

import pytest

from spawnlaunch.base.errors import UsageError
from spawnlaunch.cli import values
from tests.support.launching import WORKERS, clean_environ, launch
from tests.world.resolving import STEP_OF_TWO, explained, of_job, resolve

NOWHERE = "node.invalid"  # of RFC 6761: nobody has such a name
ELSEWHERE = "192.0.2.1"  # of RFC 5737: nobody has this address
SEVERAL = "--nnodes=2 --node-rank=1 --master-addr=h"

NO_HOSTS = [  # what is typed, and the host and port that it means
    ("h:29500", "h", "29500"),
    ("[::1]:29500", "::1", "29500"),
    ("tcp://127.0.0.1:29501", "127.0.0.1", "29501"),
    ("tcp://localhost", "localhost", ""),
    ("etcd-v2://[::1]:7", "::1", "7"),
    ("http://h/", "h", ""),
    ("//h:80", "h", "80"),
    ("[tcp://127.0.0.1:29501]", "127.0.0.1", "29501"),
    ("[h]:29500", "h", "29500"),
    ("[192.0.2.2]", "192.0.2.2", ""),
    ("me@h", "h", ""),
    ("ssh://me@h:22/home", "h", "22"),
    ("h/path", "h", ""),
]
NOBODY = ["a:b:c", "$HOST", "h1,h2", "tcp://", "file:///shared/file", "[::1", ":29500", "", "<h>"]
HOSTS = ["h", "n-1.cluster.", "my_host", "127.0.0.1", "::1", "[::1]", "fe80::1%eth0", "bücher.de"]


def refusal(flags: str, environ: dict[str, str]) -> str:
    with pytest.raises(UsageError) as refused:
        resolve(shlex.split(flags), environ)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def advised(error: str) -> str:
    return error.rpartition("; use ")[2]


@pytest.mark.parametrize("around", ["--nproc=2", "--nnodes=2 --node-rank=1 --no-gang"])
@pytest.mark.parametrize("variable", ["", "MASTER_ADDR", "PET_MASTER_ADDR"])
@pytest.mark.parametrize(("text", "host", "port"), NO_HOSTS)
def test_what_is_no_host_alone_is_refused_with_the_flags_for_what_it_names(
    text: str, host: str, port: str, variable: str, around: str
) -> None:
    flags = around if variable else f"{around} --master-addr {text}"
    environ = {variable: text} if variable else {}
    line = advised(refusal(flags, environ))
    assert line == f"--master-addr {host}" + (f" --master-port {port}" if port else "")
    world = resolve(f"{around} {line}", environ).world
    assert world.master_addr == host
    assert str(world.master_port) == (port or str(world.master_port))


@pytest.mark.parametrize("variable", ["", "PET_RDZV_ENDPOINT"])
@pytest.mark.parametrize(("text", "host", "port"), NO_HOSTS[2:])
def test_an_endpoint_with_more_than_host_and_port_is_refused_with_the_endpoint(
    text: str, host: str, port: str, variable: str
) -> None:
    environ = {variable: text} if variable else {}
    error = refusal("--nproc=2" if variable else f"--nproc=2 --rdzv-endpoint {text}", environ)
    found = values.endpoint(advised(error))
    assert found == (host, int(port or values.ENDPOINT_PORT))


@pytest.mark.parametrize("flag", ["--master-addr", "--local-addr", "--rdzv-endpoint"])
@pytest.mark.parametrize("text", NOBODY)
def test_a_word_that_names_nobody_is_refused(flag: str, text: str) -> None:
    error = refusal(f"{flag} '{text}'", {})
    assert error.startswith(f"{flag}: ")
    kind = "HOST:PORT" if flag == "--rdzv-endpoint" else "a name or an address"
    assert advised(error) == kind


@pytest.mark.parametrize("text", HOSTS)
def test_a_name_and_an_address_are_hosts(text: str) -> None:
    host = text.strip("[]")
    assert (values.host(text), values.master(text)) == (host, host)
    name = f"[{host}]" if ":" in host else host
    assert values.endpoint(f"{name}:29500") == (host, 29500)


def test_an_address_without_brackets_is_an_endpoint_with_them() -> None:
    assert advised(refusal("--rdzv-endpoint ::1", {})) == "[::1]"


NAMING = [
    ("--master-addr {}", ""),
    ("--standalone --master-addr {}", ""),
    ("--nnodes 1 --node-rank 0 --master-addr {}", ""),
    ("--local-addr {}", ""),
    ("--rdzv-endpoint {}", ""),
    ("--rdzv-backend c10d --rdzv-endpoint {}:29511", ""),
    ("", "MASTER_ADDR"),
    ("", "PET_MASTER_ADDR"),
    ("", "PET_RDZV_ENDPOINT"),
]


@pytest.mark.parametrize(("flags", "variable"), NAMING)
@pytest.mark.parametrize("nproc", [1, 2])
@pytest.mark.parametrize("address", [NOWHERE, ELSEWHERE, "2001:db8::1"])
def test_an_address_that_is_not_here_is_replaced_where_all_ranks_are(
    flags: str, variable: str, nproc: int, address: str
) -> None:
    if "ENDPOINT" in variable + flags.upper() and ":" in address:
        address = f"[{address}]"
    environ = {variable: address} if variable else {}
    found = explained(f"--nproc={nproc} {flags.format(address)}", environ)
    assert found.world.master_addr == "127.0.0.1"
    (said,) = (line for line in of_job(found) if line.startswith("replaced"))
    name = address.strip("[]")
    assert re.match(rf"replaced [-\w]+[ =]{re.escape(name)}, which (is another|has no add)", said)
    assert found.sources["master_addr"].rejected[0].value == name


@pytest.mark.parametrize(("flags", "variable"), NAMING)
@pytest.mark.parametrize("address", ["localhost", "127.0.1.1", "::1"])
def test_an_address_of_this_machine_stays(flags: str, variable: str, address: str) -> None:
    if "ENDPOINT" in variable + flags.upper() and ":" in address:
        address = f"[{address}]"
    found = explained(f"--nproc=2 {flags.format(address)}", {variable: address} if variable else {})
    assert (found.world.master_addr, of_job(found)) == (address.strip("[]"), ())


def test_all_tasks_of_one_node_replace_it_alike() -> None:
    step = STEP_OF_TWO | {
        "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NODELIST": "node1", "SLURM_NODEID": "0",
        "SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_GTIDS": "0,1",
    }  # fmt: skip
    for flags in (f"--master-addr {NOWHERE}", "--master-suffix .invalid"):
        for rank in "01":
            found = explained(flags, step | {"SLURM_PROCID": rank, "SLURM_LOCALID": rank})
            assert found.world.master_addr == "127.0.0.1"


def test_nothing_is_replaced_where_other_nodes_look_for_it() -> None:
    assert explained(SEVERAL, {}).world.master_addr == "h"


def test_ranks_meet_though_their_address_was_mistyped() -> None:
    done = launch(
        *("--nproc", 2, "--master-addr", NOWHERE, WORKERS / "meet.py"), environ=clean_environ()
    )
    assert done.returncode == 0, done.stderr
    assert f"replaced --master-addr {NOWHERE}, which has no address here" in done.stderr
