"""Compare what workers were told with what is true of all of them together."""

from collections import Counter
from typing import Any

Report = dict[str, Any]


def check(workers: list[Report], world_size: int) -> None:
    """Every value of the contract, for workers that reported in the order of their ranks."""
    check_known(workers, world_size)
    hosts = Counter(w["hostname"] for w in workers)
    for worker in workers:
        told = worker["environ"]
        assert told["GROUP_WORLD_SIZE"] == str(len(hosts))
        assert told["NODE_RANK"] == told["GROUP_RANK"]
    for host in hosts:
        assert len({w["environ"]["NODE_RANK"] for w in workers if w["hostname"] == host}) == 1
    node_ranks = {w["environ"]["NODE_RANK"] for w in workers}
    assert node_ranks == {str(i) for i in range(len(hosts))}


def check_known(workers: list[Report], world_size: int) -> None:
    """Likewise, but for the number of this node and of all, which a manager may not export."""
    assert [w["rank"] for w in workers] == list(range(world_size))
    assert all(w.get("proved", True) for w in workers)
    hosts = Counter(w["hostname"] for w in workers)
    for worker in workers:
        told, host = worker["environ"], worker["hostname"]
        assert told["WORLD_SIZE"] == str(world_size)
        assert told["LOCAL_WORLD_SIZE"] == str(hosts[host])
        assert told["MASTER_ADDR"] == workers[0]["hostname"]
        assert told["TORCHELASTIC_USE_AGENT_STORE"] == "False"  # which torch would look for there
    _check_same(workers)
    _check_local_ranks(workers, hosts)


def _check_same(workers: list[Report]) -> None:
    for name in ("MASTER_PORT", "TORCHELASTIC_RUN_ID"):
        assert len({w["environ"][name] for w in workers}) == 1, name


def _check_local_ranks(workers: list[Report], hosts: Counter[str]) -> None:
    """On each host they are 0, 1, ..."""
    for host, count in hosts.items():
        told = [w["environ"] for w in workers if w["hostname"] == host]
        assert sorted(int(t["LOCAL_RANK"]) for t in told) == list(range(count))
