"""Compare what workers were told with what is true of all of them together."""

from collections import defaultdict
from typing import Any

Report = dict[str, Any]


def check(workers: list[Report], world_size: int) -> None:
    """Every value of the contract, for workers that reported in the order of their ranks."""
    check_known(workers, world_size)
    node_ranks = defaultdict(set)
    for worker in workers:
        told = worker["environ"]
        assert told["NODE_RANK"] == told["GROUP_RANK"]
        node_ranks[worker["hostname"]].add(told["NODE_RANK"])
    assert {worker["environ"]["GROUP_WORLD_SIZE"] for worker in workers} == {str(len(node_ranks))}
    assert sorted(map(sorted, node_ranks.values())) == [[str(i)] for i in range(len(node_ranks))]


def check_known(workers: list[Report], world_size: int) -> None:
    """Likewise, but for the number of this node and of all, which a manager may not export."""
    assert [worker["rank"] for worker in workers] == list(range(world_size))
    assert all(worker.get("proved", True) for worker in workers)
    by_host = defaultdict(list)
    for worker in workers:
        told = worker["environ"]
        by_host[worker["hostname"]].append(told)
        assert told["WORLD_SIZE"] == str(world_size)
        assert told["MASTER_ADDR"] == workers[0]["hostname"]
        assert told["TORCHELASTIC_USE_AGENT_STORE"] == "False"  # which torch would look for there
    for name in ("MASTER_PORT", "TORCHELASTIC_RUN_ID"):
        assert len({worker["environ"][name] for worker in workers}) == 1, name
    for here in by_host.values():
        assert {told["LOCAL_WORLD_SIZE"] for told in here} == {str(len(here))}
        assert sorted(int(told["LOCAL_RANK"]) for told in here) == list(range(len(here)))
