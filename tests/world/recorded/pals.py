"""HPE PALS.

flux-framework/flux-coral2 src/shell/plugins/cray_pals.c; ALCF user guides (Polaris, Aurora).
"""

from tests.world.recorded import UNKNOWN, Case, Found, Refused

PALS = {
    "PALS_RANKID": "5",
    "PALS_LOCAL_RANKID": "1",
    "PALS_LOCAL_SIZE": "4",
    "PALS_NODEID": "1",
    "PALS_APID": "3f5e0a9c-1c0e-4d0e-a6a5-1c4d4f0b8a11",
    "PALS_DEPTH": "1",
    "PBS_JOBID": "123.polaris-pbs-01",
}
CASES = [
    Case(
        "with PMI_SIZE",
        {**PALS, "PMI_RANK": "5", "PMI_SIZE": "8", "PMI_LOCAL_RANK": "1", "PMI_LOCAL_SIZE": "4"},
        Found(
            "task",
            {
                "rank": (5, "PALS_RANKID"),
                "world_size": (8, "PMI_SIZE"),
                "local_rank": (1, "PALS_LOCAL_RANKID"),
                "local_world_size": (4, "PALS_LOCAL_SIZE"),
                "node_rank": (1, "PALS_NODEID"),
                "nnodes": (None, UNKNOWN),
                "run_id": (PALS["PALS_APID"], "PALS_APID"),
            },
            "--master-addr x3005c0s7b0n0",
        ),
    ),
    Case("without PMI_SIZE", PALS, Refused("HPE PALS exports no world size here; type --world-")),
    Case(
        "without PMI_SIZE, which was typed",
        PALS,
        Found("task", {"world_size": (8, "--world-size")}, "--world-size 8 --master-addr x0"),
    ),
    Case(
        "a size that contradicts the one that was typed",
        {**PALS, "PMI_SIZE": "8"},
        Refused("--world-size 9, but it is 8 (PMI_SIZE); leave --world-size out", "--world-size 9"),
    ),
]
