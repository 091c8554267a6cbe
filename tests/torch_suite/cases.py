"""PyTorch's tests of its launcher that ask for what is seen from outside, one row each.

The files are below test/distributed in PyTorch's repository; some of those tests there are run by
hand. Each is restated: command lines and functions of ours, and what the test asks of them. Where
a test needs an etcd server, the nodes meet by c10d here. OUTSIDE has those that cannot be asked of
another launcher, each with the reason.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.dropin.line import Line
from tests.torch_suite import checks as c
from tests.torch_suite.running import Call, Case, Check

RUN, API, LAUNCH = "launcher/test_run.py", "launcher/api_test.py", "launcher/launch_test.py"
AGENT = "elastic/agent/server/test/local_elastic_agent_test.py"
SHUTDOWN = "elastic/agent/server/test/shutdown_timeout_test.py"
PROCESSES = "elastic/multiprocessing/api_test.py"
ERRORS = "elastic/multiprocessing/errors/api_test.py"
TAIL = "elastic/multiprocessing/tail_log_test.py"
REDIRECTS = "elastic/multiprocessing/redirects_test.py"

COMMON = "--monitor-interval=1 --start-method=spawn"
FOUR = f"--nnodes=1 --nproc-per-node=4 {COMMON}"
TWO = "--nproc-per-node=2"
C10D = "--rdzv-backend=c10d --rdzv-endpoint=localhost:{port} --rdzv-id=7"
CONF = "--rdzv-conf='join_timeout=60,last_call_timeout=1'"
ELASTIC = f"--nnodes=1:2 --nproc-per-node=4 {C10D} {CONF} {COMMON}"
STATIC = "--master-addr=localhost --master-port={port} --node-rank=0"
TEMPLATE = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"
PREFIX = {TEMPLATE: "[default${rank}]:"}
LOGS = "--log-dir {logs}"
EXPORTED = {"PET_NNODES": "1", "PET_NPROC_PER_NODE": "4", "PET_RDZV_ID": "7",
            "PET_MONITOR_INTERVAL": "1", "PET_START_METHOD": "spawn",
            "PET_NO_PYTHON": "1"}  # fmt: skip
CONTRACT = (
    *("RANK", "LOCAL_RANK", "ROLE_RANK", "ROLE_NAME", "GROUP_RANK", "LOCAL_WORLD_SIZE"),
    *("ROLE_WORLD_SIZE", "WORLD_SIZE", "GROUP_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    *("TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID"),
    *("TORCHELASTIC_USE_AGENT_STORE", "TORCH_NCCL_ASYNC_ERROR_HANDLING"),
)
STDOUT = ("stdout of Python 0", "stdout of C 0", "stdout of a program")
STDERR = ("stderr of Python", "stderr of C", "stderr of a program")


def row(
    file: str, test: str, asks: str, line: Line | Call, *checks: Check, differs: str = ""
) -> Case:
    """A case on one node."""
    return Case(file, test, asks, ((line,),), checks, differs)


def several(file: str, test: str, asks: str, nodes: list[Line | Call], *checks: Check) -> Case:
    """A case on several nodes, all of which are this machine."""
    return Case(file, test, asks, tuple((node,) for node in nodes), checks)


def agents(*roles: tuple[str, int]) -> list[Line | Call]:
    """A launcher for each role and number of workers."""
    return [
        Line(f"--nnodes={len(roles)} --nproc-per-node={size} --role={role} {C10D} train.py")
        for role, size in roles
    ]


def asking(size: int, nodes: int) -> Call:
    return Call("sum_of_ranks", nproc_per_node=size, nodes=(nodes, nodes), role="sum")


# fmt: off
CASES = [
    row(RUN, "test_launch_user_script_python", "four workers run", Line(f"{FOUR} --rdzv-id=7 train.py"), c.ranks(4)),
    row(RUN, "test_launch_user_script_python_caffe2_bc", "four workers run at the address typed", Line(f"{FOUR} {STATIC} train.py"), c.ranks(4)),
    row(RUN, "test_launch_user_script_bash", "`--no-python` with `--module` is refused", Line(f"{FOUR} --no-python --module {{python}} train.py"), c.refused),
    row(RUN, "test_launch_user_script_bash", "a program that is no Python runs four times", Line(f"{FOUR} --no-python sh -c '{{python}} train.py'"), c.ranks(4)),
    row(RUN, "test_launch_user_script_default_nproc", "without a number, one worker runs", Line(f"--nnodes=1 {COMMON} --no-python {{python}} train.py"), c.ranks(1)),
    row(RUN, "test_launch_with_env_vars", "`PET_NO_PYTHON` with `PET_MODULE` is refused", Line("{python} train.py", {**EXPORTED, "PET_MODULE": "1"}), c.refused),
    row(RUN, "test_launch_with_env_vars", "flags may be exported", Line("{python} train.py", {**EXPORTED, "PET_MODULE": "0"}), c.ranks(4)),
    row(RUN, "test_nproc_launch_number_configurations", "`--nproc-per-node 4`", Line(f"--nnodes=1 --nproc-per-node=4 --rdzv-id=7 {COMMON} --no-python {{python}} train.py"), c.ranks(4)),
    row(RUN, "test_nproc_launch_unknown_configurations", "`--nproc-per-node unknown` is refused", Line("--nproc-per-node=unknown train.py"), c.refused),
    row(RUN, "test_launch_elastic", "one of one to two nodes begins alone", Line(f"{ELASTIC} train.py"), c.ranks(4)),
    row(RUN, "test_launch_elastic_worker_raise_exception", "a worker's failure is the launcher's", Line(f"{ELASTIC} --max-restarts=0 train.py", do="raise"), c.failed, c.attempts("0")),
    row(RUN, "test_launch_standalone", "`--standalone`", Line(f"--standalone {FOUR} train.py"), c.ranks(4)),
    row(RUN, "test_launch_run_path", "`--run-path`", Line(f"--run-path {FOUR} {{dir}}/train.py", {"PROBE_IMPORTED": "1"}), c.ranks(4)),
    several(RUN, "test_launch_elastic_multiple_agents", "two nodes of one to two meet", [Line(f"{ELASTIC} train.py")] * 2, c.ranks(8)),
    row(RUN, "test_min_max_nodes_parse", "`--nnodes 1` is one node", Line("--nnodes=1 train.py"), c.ranks(1), c.has(GROUP_WORLD_SIZE="1")),
    row(RUN, "test_min_max_nodes_parse", "`--nnodes 2:20:30` is refused", Line("--nnodes=2:20:30 train.py"), c.refused),
    row(RUN, "test_is_torchelastic_launched", "torch knows that it was launched", Call("is_launched", nproc_per_node=1), c.returned(True)),
    row(RUN, "test_is_torchelastic_launched_with_logs_spec_defined", "`--logs-specs=default`", Line("--nnodes=1 --logs-specs=default train.py"), c.ranks(1), c.has_all("TORCHELASTIC_RUN_ID")),
    row(RUN, "test_logs_logs_spec_entrypoint_must_be_defined", "`--logs-specs` of a name that nobody has is refused", Line("--logs-specs=DOESNOT_EXIST train.py"), c.refused),
    row(RUN, "test_init_method_tcp_with_torchelastic", "`init_process_group` by tcp://", Line(f"{FOUR} {STATIC} train.py", do="reduce tcp"), c.ranks(4), c.left(".sum")),
    row(RUN, "test_init_method_env_with_torchelastic", "`init_process_group` by env://", Line(f"{FOUR} {STATIC} train.py", do="reduce"), c.ranks(4), c.left(".sum")),
    row(RUN, "test_capture_logs_using_default_logs_specs", "a prefix of one's own with `--tee=3`", Line(f"{FOUR} --redirect=3 --tee=3 train.py", {TEMPLATE: "[rank${rank}]: "}), c.ranks(4), *(c.says(rf"^\[rank{rank}\]: out of {rank}$") for rank in range(4))),

    row(API, "test_launch_script_python", "four workers run", Line(f"--nnodes=1 --nproc-per-node=4 {C10D} --no-python {{python}} -u train.py"), c.ranks(4)),
    row(API, "test_launch_script_python_local_rank_transfer", "each knows its local rank", Line(f"--nnodes=1 --nproc-per-node=4 {C10D} train.py --rank=${{local_rank}}"), c.ranks(4), lambda nodes: all(w["argv"][1] == f"--rank={rank}" for rank, w in c.workers(nodes).items())),
    row(API, "test_launch_script_bash", "a shell's script runs four times", Line(f"--nnodes=1 --nproc-per-node=4 {C10D} --no-python sh -c '{{python}} train.py'"), c.ranks(4)),
    row(API, "test_launch_function", "what a function returns in each rank", Call("rank_plus_ten", nproc_per_node=4), c.returned(10, 11, 12, 13)),
    row(API, "test_launch_dist_sum_with_static_rdzv", "the sum of all ranks, in each", Call("sum_of_ranks", nproc_per_node=4), c.returned(6, 6, 6, 6)),
    row(API, "test_launch_elastic", "one of one to two nodes begins alone", Line(f"{ELASTIC} --no-python {{python}} train.py"), c.ranks(4)),
    row(API, "test_launch_elastic_worker_raise_exception", "a function's failure is raised to who called", Call("fail_in_rank", ("0", "raise"), 4, (1, 2)), c.first_failure(1, "of this rank")),
    several(API, "test_launch_elastic_multiple_agents", "two nodes of one to two meet", [Line(f"{ELASTIC} --no-python {{python}} train.py")] * 2, c.ranks(8)),

    row(LAUNCH, "test_launch_without_env", "the script has `--local-rank`", Line(f"{FOUR} {STATIC} train.py", program="launch"), c.ranks(4), c.argument_is_local_rank),
    row(LAUNCH, "test_launch_with_env", "`--use-env`: it has none", Line(f"{FOUR} {STATIC} --use-env train.py", program="launch"), c.ranks(4), lambda nodes: all(w["argv"][1:] == [] for w in c.workers(nodes).values())),

    row(AGENT, "dummy_compute", "a function returns a tensor", Call("tensor"), c.returned({"shape": [100, 100]}, {"shape": [100, 100]})),
    row(AGENT, "run_happy_function", "a function returns nothing", Call("nothing"), c.returned(None, None)),
    row(AGENT, "check_master_addr_port_override", "address and port are those typed", Line(f"--nnodes=1 {STATIC} train.py"), c.ranks(1), c.has(MASTER_ADDR="localhost")),
    row(AGENT, "run_check_env_function", "workers have each of 16 variables", Line(f"{C10D} train.py"), c.ranks(1), c.has_all(*CONTRACT)),
    row(AGENT, "run_check_nccl_async_error_handling_env", "what is exported is kept", Line(f"{C10D} train.py", {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}), c.has(TORCH_NCCL_ASYNC_ERROR_HANDLING="0"), c.ranks(1)),
    row(AGENT, "run_check_nccl_async_error_handling_env_default", "the default is 1", Line(f"{C10D} train.py"), c.has(TORCH_NCCL_ASYNC_ERROR_HANDLING="1"), c.ranks(1)),
    row(AGENT, "run_agent_local_watchdog_setup_enabled", "workers have the file timer's variable where it is set", Line(f"{C10D} train.py", {"TORCHELASTIC_TIMER_FILE": "{tmp}/timer", "TORCHELASTIC_ENABLE_FILE_TIMER": "1"}), c.ranks(1), c.has_all("TORCHELASTIC_TIMER_FILE")),
    row(AGENT, "run_agent_local_watchdog_setup_disabled", "and have none where it is not", Line(f"{C10D} train.py"), c.ranks(1), c.has_none("TORCHELASTIC_TIMER_FILE")),
    row(AGENT, "run_agent_healthcheck_setup_enabled", "workers have the health check's port where it is set", Line(f"{C10D} train.py", {"TORCHELASTIC_HEALTH_CHECK_PORT": "{port}"}), c.ranks(1), c.has_all("TORCHELASTIC_HEALTH_CHECK_PORT")),
    row(AGENT, "run_agent_healthcheck_setup_disabled", "and have none where it is not", Line(f"{C10D} train.py"), c.ranks(1), c.has_none("TORCHELASTIC_HEALTH_CHECK_PORT")),
    row(AGENT, "run_function_with_return_value", "a function returns its argument", Call("echo", ("foo",)), c.returned("foo", "foo")),
    row(AGENT, "simple_dist_sum", "two workers reduce", Call("sum_of_ranks"), c.returned(1, 1)),
    several(AGENT, "run_distributed_sum_homogeneous", "two nodes of four workers reduce", [asking(4, 2)] * 2, c.returned(*[28] * 8)),
    several(AGENT, "test_run_with_custom_log_lines", "the prefix has role, local rank and rank, on each node", [Line(f"--nnodes=2 --nproc-per-node=2 --role=sum --tee=3 {C10D} train.py", {TEMPLATE: "[${role_name}-${local_rank}:${rank}]:"})] * 2, c.ranks(4), *(c.says(rf"^\[sum-{rank % 2}:{rank}\]:out of {rank}$") for rank in range(4))),
    several(AGENT, "run_distributed_sum_heterogeneous", "nodes of one, two and three workers reduce", [asking(size, 3) for size in (1, 2, 3)], c.returned(*[15] * 6)),
    row(AGENT, "run_sad_function", "the first failure's error file is the launch's", Line(f"{TWO} {C10D} train.py", {"TORCHELASTIC_ERROR_FILE": "{dir}/error.json"}, do="record"), c.failed, c.error_is_recorded),
    row(AGENT, "run_bipolar_function", "every second worker fails until no restart is left", Line(f"--nproc-per-node=4 --max-restarts=2 {C10D} train.py", do="1:exit 1;3:exit 1"), c.failed, c.attempts("0", "1", "2")),
    several(AGENT, "correct_rank_assignment_heterogeneous", "ranks and role ranks of seven nodes with three roles", agents(("master", 8), ("trainer", 1), ("trainer", 2), ("trainer", 3), ("trainer", 4), ("ps", 5), ("ps", 2)), c.ranks(25), c.roles(master=8, trainer=10, ps=7)),
    several(AGENT, "correct_rank_assignment_homogeneous", "the same, roles of like nodes", agents(("master", 1), *[("trainer", 4)] * 4, *[("ps", 3)] * 2), c.ranks(23), c.roles(master=1, trainer=16, ps=6)),
    several(AGENT, "no_exit_barrier_on_failure", "a worker fails: no node waits for those that sleep", [Line(f"--nnodes=2 {TWO} --max-restarts=0 {C10D} train.py", do="0:sleep;2:sleep;1:exit 1;3:exit 1")] * 2, c.failed),
    several(AGENT, "torch_rpc", "a worker of one role calls one of another", [Call("remote", (role, "hello"), 1, (2, 2), role) for role in ("master", "worker")], c.returned("hello", None)),
    several(AGENT, "workers_drift_success", "one node ends two seconds after the other", [Call("rank_after", (seconds,), 1, (2, 2)) for seconds in (0, 2)], c.returned(0, 1)),
    several(AGENT, "workers_drift_fail", "or four", [Call("rank_after", (seconds,), 1, (2, 2)) for seconds in (0, 4)], c.returned(0, 1)),
    row(AGENT, "fail_rank_one_once", "a rank is killed once: all are started again", Line(f"{TWO} --max-restarts=3 {C10D} train.py", do="1:kill 9@0"), c.ranks(2), c.attempts("0", "1")),

    row(SHUTDOWN, "test_shutdown_timeout_validation_negative", "`--shutdown-timeout -5` is refused", Line("--shutdown-timeout=-5 train.py"), c.refused),
    row(SHUTDOWN, "test_shutdown_timeout_zero", "0 is none", Line(f"--shutdown-timeout=0 {TWO} train.py"), c.ranks(2)),
    row(SHUTDOWN, "test_launch_config_env_var_shutdown_timeout", "it may be exported", Line(f"{TWO} train.py", {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "600"}), c.ranks(2)),

    *(row(PROCESSES, "StdTest.test_from_value", f"`-r {number}`", Line(f"-r {number} {LOGS} {TWO} train.py"), c.ranks(2), c.in_file(0, "stdout", *["out of 0"] * (number & 1)), c.in_file(1, "stderr", *["err of 1"] * (number >> 1))) for number in range(4)),
    row(PROCESSES, "StdTest.test_from_value_map", "`-r 0:1`", Line(f"-r 0:1 {LOGS} {TWO} train.py"), c.in_file(0, "stdout", "out of 0"), c.in_file(1, "stdout")),
    row(PROCESSES, "StdTest.test_from_value_map", "`-r 0:1,1:1`", Line(f"-r 0:1,1:1 {LOGS} {TWO} train.py"), c.in_file(0, "stdout", "out of 0"), c.in_file(1, "stdout", "out of 1")),
    *(row(PROCESSES, "StdTest.test_from_str_bad_input", f"`-r {bad}` is refused", Line(f"-r {bad} {TWO} train.py"), c.refused) for bad in ("0:1,", "11", "0:1,1", "1,0:1")),
    row(PROCESSES, "test_invalid_log_dir", "a log directory that is a file is refused", Line(f"-r 3 --log-dir {{dir}}/train.py {TWO} train.py"), c.refused),
    row(PROCESSES, "test_function_with_tensor", "a function returns a tensor", Call("tensor", nproc_per_node=1), c.returned({"shape": [100, 100]})),
    row(PROCESSES, "test_void_function", "a function returns nothing", Call("nothing"), c.returned(None, None)),
    row(PROCESSES, "test_function_large_ret_val", "four functions return 200,000 values each", Call("large", (200_000,), 4), c.returned(*[{"size": 200_000}] * 4)),
    row(PROCESSES, "test_function_raise", "one of two functions raises: its rank, its status, its message", Call("fail_in_rank", ("0", "raise")), c.first_failure(1, "of this rank"), lambda nodes: nodes[0].said["rank"] == 0),
    row(PROCESSES, "test_function_exit", "one of two functions exits with 138", Call("fail_in_rank", ("0", "138"), redirects={"0": 2}), c.first_failure(138), c.in_file(0, "stderr", "is said before"), c.in_file(1, "stderr")),
    row(PROCESSES, "test_binary_exit", "one of two programs exits with 138", Line(f"-r 0:3 {LOGS} {TWO} train.py", do="0:exit 138"), c.failed, c.says(r"\b138\b"), c.in_file(0, "stderr", "err of 0"), c.in_file(1, "stderr")),
    row(PROCESSES, "test_binary_raises", "one of two programs raises", Line(f"{TWO} train.py", do="0:raise"), c.failed, c.says("bad luck")),
    row(PROCESSES, "test_binary_signal", "one of two programs dies of a signal, which is named", Line(f"{TWO} train.py", do="0:kill 11"), c.failed, c.says("SIGSEGV")),
    row(PROCESSES, "test_binary_incorrect_entrypoint", "a program that is not there", Line(f"--no-python {TWO} does_not_exist.py"), c.refused, c.says("does_not_exist.py")),
    *(row(PROCESSES, "test_binary", f"two programs with `-r {number}` end well", Line(f"-r {number} {LOGS} {TWO} train.py x"), c.ranks(2)) for number in (0, 3)),
    *(row(PROCESSES, "test_function", f"two functions with redirects {number} return", Call("speak", redirects=number), c.returned("0", "1"), c.in_file(0, "stdout", *STDOUT[: 3 * (number & 1)]), c.in_file(1, "stderr", *STDERR[: 3 * (number >> 1)])) for number in range(4)),
    row(PROCESSES, "test_binary_redirect_and_tee", "streams of some ranks to files, of others to both", Line(f"-r 0:2 -t 0:1,1:2 {LOGS} {TWO} train.py", PREFIX), c.ranks(2), c.in_file(0, "stdout", "out of 0"), c.in_file(0, "stderr", "err of 0"), c.in_file(1, "stderr", "err of 1"), c.in_file(1, "stdout"), c.says(r"^\[default0\]:out of 0$")),
    row(PROCESSES, "test_function_redirect_and_tee", "the same of functions", Call("speak", redirects={"0": 2}, tee={"0": 1, "1": 2}), c.returned("0", "1"), c.in_file(0, "stdout", *STDOUT), c.in_file(0, "stderr", *STDERR), c.in_file(1, "stderr", *STDERR), c.in_file(1, "stdout")),
    *(row(PROCESSES, "test_no_zombie_process_binary", f"{name} ends the launcher and its workers", Line(f"{TWO} train.py", c.marked(name), do="sleep", signals=(name,)), c.failed, lambda nodes: len(c.workers(nodes)) == 2, c.nothing_runs) for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")),

    row(ERRORS, "test_record", "what @record writes", Line(f"{C10D} train.py", {"TORCHELASTIC_ERROR_FILE": "{dir}/error.json"}, do="record"), c.failed, c.error_is_recorded),
    row(ERRORS, "test_record_good_fn", "no failure, no error file", Line(f"{C10D} train.py", {"TORCHELASTIC_ERROR_FILE": "{dir}/error.json"}), c.ranks(1), c.no_error_file),
    row(ERRORS, "test_record_child_failure_no_child_error_file", "a failure that @record has not seen: no error file", Line(f"{C10D} train.py", {"TORCHELASTIC_ERROR_FILE": "{dir}/error.json"}, do="exit 1"), c.failed, c.no_error_file, differs="error file"),
    row(ERRORS, "test_child_failed_error_signal_name_in_message", "the last words name the signal", Line(f"{C10D} train.py", do="kill 11"), c.failed, c.says("SIGSEGV")),
    row(ERRORS, "test_process_failure_no_error_file", "and the status", Line(f"{C10D} train.py", do="exit 138"), c.failed, c.says(r"\b138\b")),

    Case(TAIL, "test_tail", "32 workers print 1,000 lines each: none is lost", ((Line("--tee 1 --nproc-per-node=32 train.py", PREFIX, do="count 1000"),),), (c.ranks(32), c.has_lines_of_all(32, 1000)), unsteady="lines of several workers run into each other"),
    row(TAIL, "test_tail_with_custom_prefix", "three workers with a prefix of one's own", Line("--tee 1 --nproc-per-node=3 train.py", {TEMPLATE: "[worker${rank}][${local_rank}]:"}, do="count 10"), c.ranks(3), *(c.says(rf"^\[worker{rank}\]\[{rank}\]:line 9$") for rank in range(3))),

    row(REDIRECTS, "test_redirect_stdout", "stdout of Python, of C and of a program is in its file", Call("speak", nproc_per_node=1, redirects=1), c.in_file(0, "stdout", *STDOUT), c.in_file(0, "stderr")),
    row(REDIRECTS, "test_redirect_stderr", "stderr of all three", Call("speak", nproc_per_node=1, redirects=2), c.in_file(0, "stderr", *STDERR), c.in_file(0, "stdout")),
    row(REDIRECTS, "test_redirect_both", "both, each in its own", Call("speak", nproc_per_node=1, redirects=3), c.in_file(0, "stdout", *STDOUT), c.in_file(0, "stderr", *STDERR)),
    row(REDIRECTS, "test_redirect_large_buffer_py", "500,000 lines of Python", Call("speak", (500_000,), 1, redirects=1), c.has_all_lines(r"^stdout of Python (\d+)$", 500_000)),
    row(REDIRECTS, "test_redirect_large_buffer_c", "500,000 lines of C", Call("speak", (500_000,), 1, redirects=1), c.has_all_lines(r"^stdout of C (\d+)$", 500_000)),
]


class Outside(NamedTuple):
    """Tests that cannot be asked of another launcher."""

    file: str
    tests: str
    why: str


OUTSIDE = [
    Outside(RUN, "test_launch_elastic_agent_raise_exception, test_launch_shutdown", "replace torch's agent or its rendezvous by a mock"),
    Outside(RUN, "test_nproc_launch_auto_configurations, test_nproc_gpu_launch_configurations, test_nproc_xpu_launch_configurations", "patch what torch says of the devices; `tests/node` has the same on drawn machines"),
    Outside(RUN, "test_is_not_torchelastic_launched", "starts no launcher"),
    Outside(RUN, "test_virtual_local_rank", "needs two GPUs; `tests/dropin` compares the variables"),
    Outside(API, "test_launch_elastic_agent_raise_exception, test_launch_shutdown, test_rdzv_handler_shutdown_on_agent_signal, test_rdzv_handler_shutdown_on_agent_error", "replace torch's agent or its rendezvous by a mock"),
    Outside(API, "test_get_entrypoint_name", "calls a private function of torch"),
    Outside(AGENT, "double_agent_fault_tolerance, double_agent_elastic", "kill a launcher in a moment that nothing fixes; by c10d torchrun may run into its own timeouts then. `tests/gang` and `make stress` kill launchers of ours in any moment"),
    Outside(AGENT, "barrier_failed, shutdown_called", "replace torch's store or its processes by a mock"),
    Outside("elastic/agent/server/test/api_test.py", "all", "ask torch's own classes, with mocks for the rest"),
    Outside(SHUTDOWN, "the other tests", "read an attribute of torch's own classes"),
    Outside(PROCESSES, "RunProcResultsTest, test_to_map, test_args_env_len_mismatch, test_validate_full_rank, test_multiprocessing_context_poll_raises_exception, test_wrap_bad", "ask torch's own classes and private functions"),
    Outside(PROCESSES, "test_pcontext_wait, test_multiprocess_context_close, test_subprocess_context_close, test_no_zombie_process_function", "hold the context of running processes, for which spawnlaunch has no object"),
    Outside(ERRORS, "the other tests", "ask torch's own `ProcessFailure`, `ChildFailedError` and `record`, which workers have from torch under any launcher"),
    Outside("elastic/multiprocessing/errors/error_handler_test.py", "all", "ask torch's own `ErrorHandler`, which workers have from torch under any launcher"),
    Outside(TAIL, "the other tests", "ask torch's own `TailLog`"),
    Outside(REDIRECTS, "test_redirect_invalid_std", "asks torch's own `redirect`"),
]
