"""PBS.

qsub(1B), "Environment Variables"; a line per slot.
"""

from tests.world.recorded import HERE, Case, Found, Refused

PBS = {"PBS_JOBID": "123.server", "PBS_NODEFILE": "{files}/nodes"}
CASES = [
    Case(
        "one host",
        PBS,
        Found(
            "local",
            {"world_size": 2, "master_addr": "127.0.0.1", "run_id": ("123.server", "PBS_JOBID")},
            "--nproc 2",
        ),
        {"nodes": f"{HERE}\n{HERE}\n"},
    ),
    Case(
        "two hosts, with a domain",
        PBS,
        Found(
            "node",
            {
                "rank": 2,
                "world_size": 4,
                "node_rank": (1, f"place of {HERE} in PBS_NODEFILE"),
                "nnodes": (2, "PBS_NODEFILE"),
                "master_addr": ("first.cluster", "first host of PBS_NODEFILE"),
            },
            "--nproc 2",
        ),
        {"nodes": f"first.cluster\nfirst.cluster\n{HERE}.cluster\n"},
    ),
    Case(
        "two hosts, and this is neither",
        PBS,
        Refused("which of the 2 nodes this is; type --node-rank N", "--nproc 2 --no-gang"),
        {"nodes": "first\nsecond\n"},
    ),
    Case(
        "no file, as in a container",
        PBS,
        Refused("PBS_NODEFILE cannot be read here", "--nproc 2"),
    ),
    Case(
        "no file, and it was typed",
        PBS,
        Found("local", {"world_size": 2}, "--nproc 2 --standalone"),
    ),
]
