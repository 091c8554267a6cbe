"""Of several failures the first is named, also where its news is later.

The rules are in test_decisions, and generated schedules in tests/machine; here is what the kernel
and a worker's own words tell of when a failure began.
"""

import json
import signal
from pathlib import Path

import pytest

from tests.support.dying import COMMON
from tests.support.matrix import mostly_full
from tests.support.processes import state, until
from tests.support.watching import launched

SEGV, ABRT = 139, 134

CRASHES_SLOWLY = """
if rank == 1:
    memory = slow_to_die()
    tell("pid")
    os.kill(os.getpid(), getattr(signal, how))
wait_until_it_dies(told("pid"))
os._exit(7)
"""

EXITS_SLOWLY = """
if rank == 1:
    memory = slow_to_die()
    tell("pid")
    os._exit(7)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
wait_until_it_dies(told("pid"))
os.abort()
"""

FAILS_AS_A_VICTIM = CRASHES_SLOWLY.replace(
    "os._exit(7)", "print('RuntimeError: Connection closed by peer', file=sys.stderr)\nos._exit(7)"
)

SAYS = "os.write(2, b\"terminate called after throwing an instance of 'std::runtime_error'\\n\")"

ABORTS_SLOWLY = f"""
if rank == 1:
    memory = slow_to_die()
    {SAYS}
    time.sleep(0.2)  # whoever reads this may be late
    tell("pid")
    os.abort()
wait_until_it_dies(told("pid"))
os._exit(7)
"""

VICTIM_ABORTS = """
if rank == 0:
    tell("pid")
    told("ready")
    os._exit(7)
memory = slow_to_die()
pid = told("pid")
tell("ready")
wait_until_it_dies(pid)
os.abort()
"""

VICTIM_SAYS_SO = VICTIM_ABORTS.replace("os.abort()", f"{SAYS}\nos.abort()")

WHEN_TOLD = """
def dies(*_):
    {}
signal.signal(signal.SIGTERM, dies)
if rank == 0:
    told("pid")
    os._exit(7)
tell("pid")
while True:
    time.sleep(1)
"""
CRASHES_WHEN_TOLD = WHEN_TOLD.format("ctypes.string_at(0)")
ABORTS_WHEN_TOLD = WHEN_TOLD.format(f"{SAYS}; os.abort()")
RAISES_WHEN_TOLD = WHEN_TOLD.format(
    "open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w').write("
    '\'{"message": {"extraInfo": {"timestamp": "%d"}}}\' % time.time()); os._exit(1)'
)

RAISES_AND_ENDS_LATE = """
if rank == 0:
    told("pid")
    time.sleep(0.2)
    sys.exit(3)
error = {"message": {"message": "ValueError: bad", "extraInfo": {
    "py_callstack": "Traceback\\nValueError: the reason", "timestamp": str(int(time.time()))}}}
with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
    json.dump(error, file)
tell("pid")
time.sleep(600)
"""

CRASH = "how = '{}'" + CRASHES_SLOWLY
ABORTS = "how = 'SIGABRT'" + FAILS_AS_A_VICTIM

# What the ranks do, which is the first to fail, with which status, and flags.
CASES = {
    "SEGV": (CRASH.format("SIGSEGV"), 1, SEGV),
    "an exit that an abort follows": (EXITS_SLOWLY, 1, 7),
    "record": (RAISES_AND_ENDS_LATE, 1, 1),
    "record when told": (RAISES_WHEN_TOLD, 0, 7),
    "ABRT that is said": (ABORTS_SLOWLY, 1, ABRT),
    "BUS": (CRASH.format("SIGBUS"), 1, 128 + 7),
    "ABRT of who may be a victim": (CRASH.format("SIGABRT"), 0, 7),
    "ABRT of a peer": (ABORTS, 1, ABRT),
    "a victim": (VICTIM_ABORTS, 0, 7),
    "a victim that says it": (VICTIM_SAYS_SO, 0, 7),
    "told": (CRASHES_WHEN_TOLD, 0, 7),
    "told, and says it to a file": (ABORTS_WHEN_TOLD, 0, 7),  # when it said so is not known
}


@pytest.mark.parametrize("case", mostly_full(CASES, 3))
def test_the_first_failure_is_named_and_not_the_one_that_is_seen_first(
    case: str, tmp_path: Path
) -> None:
    script, first, status = CASES[case]
    program, result = tmp_path / "script.py", tmp_path / "result.json"
    program.write_text(COMMON + script)
    words = ("--nproc", 2, "--result", result)
    if "to a file" in case:
        words += ("--redirects", 3, "--log-dir", tmp_path / "logs")
    with launched(*words, program, directory=tmp_path, environ={"HERE": str(tmp_path)}) as one:
        assert one.status() == status, one.stderr
        assert f"failed first: rank {first} " in one.stderr
    record = json.loads(result.read_text())
    assert (record["first_failure"], record["status"]) == (first, status)


# Each rank ends right after the one above it has.
ONE_AFTER_THE_OTHER = """
import select
tell(f"pid{rank}")
os.write(1, b"ready\\n")
told("go")
if rank < 3:
    poller = select.poll()
    poller.register(os.pidfd_open(told(f"pid{rank + 1}")), select.POLLIN)
    poller.poll()
os._exit(10 + rank)
"""


def test_the_order_of_exits_decides_though_the_guard_hears_of_all_in_one_moment(
    tmp_path: Path,
) -> None:
    program = tmp_path / "script.py"
    program.write_text(COMMON + ONE_AFTER_THE_OTHER)
    environ = {"HERE": str(tmp_path)}
    with launched("--nproc", 4, program, directory=tmp_path, environ=environ) as one:
        one.read_until(4)
        workers = one.workers
        one.send(signal.SIGSTOP, one.guard)
        (tmp_path / "go.new").write_text("0")
        (tmp_path / "go.new").rename(tmp_path / "go")  # no worker reads it half written
        until(lambda: {state(pid) for pid in workers} == {"Z"}, "all have ended")
        one.send(signal.SIGCONT, one.guard)
        assert one.status() == 13
        assert "failed first: rank 3" in one.stderr
