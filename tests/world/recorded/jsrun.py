"""LSF jsrun.

Lightning's LSF environment; hydra's lsf_query_node_list.c; IBM Spectrum LSF reference.
"""

from tests.world.recorded import HERE, Case, Found, Refused

JSRUN = {
    "LSB_JOBID": "1234", "LSB_DJOB_RANKFILE": "{files}/ranks", "JSM_NAMESPACE_RANK": "3",
    "JSM_NAMESPACE_SIZE": "4", "JSM_NAMESPACE_LOCAL_RANK": "1", "JSM_NAMESPACE_LOCAL_SIZE": "2",
}  # fmt: skip
RANKFILE = {"ranks": "batch1\nh41n08\nh41n08\nh41n09\nh41n09\n"}
CASES = [
    Case(
        "all hosts of the rank file",
        JSRUN,
        Found(
            "task",
            {
                "rank": (3, "JSM_NAMESPACE_RANK"),
                "world_size": (4, "JSM_NAMESPACE_SIZE"),
                "local_rank": (1, "JSM_NAMESPACE_LOCAL_RANK"),
                "local_world_size": (2, "JSM_NAMESPACE_LOCAL_SIZE"),
                "master_addr": ("h41n08", "second host of LSB_DJOB_RANKFILE"),
                "run_id": ("1234", "LSB_JOBID"),
            },
        ),
        RANKFILE,
    ),
    Case(
        "one of two at once",
        {**JSRUN, "JSM_NAMESPACE_ID": "2", "LSB_JOBINDEX": "0"},
        Found("task", {"run_id": ("1234.2", "LSB_JOBID.JSM_NAMESPACE_ID")}),
        RANKFILE,
    ),
    Case(
        "a task of an array",
        {**JSRUN, "LSB_JOBINDEX": "7"},
        Found("task", {"run_id": ("1234.7", "LSB_JOBID.LSB_JOBINDEX")}),
        RANKFILE,
    ),
    Case(
        "one host, and not the first of the file",
        {**JSRUN, "JSM_NAMESPACE_SIZE": "2", "JSM_NAMESPACE_RANK": "1"},
        Found("task", {"master_addr": (HERE, "this host: all ranks are on it")}),
        RANKFILE,
    ),
    Case(
        "some hosts of the file, it is not known which",
        {**JSRUN, "JSM_NAMESPACE_SIZE": "6"},
        Refused("uses some of its hosts only; type --master-addr HOST"),
        RANKFILE,
    ),
    Case("no rank file", JSRUN, Refused("it cannot be read, or")),
]
