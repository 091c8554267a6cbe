"""Of several failures the first is named, also where its news is later."""

import json
import os
from functools import partial
from pathlib import Path

import pytest

import spawnlaunch
from spawnlaunch.calling.outcomes import WorkerError
from tests.support.dying import COMMON
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

CRASHES_WHEN_TOLD = """
if rank == 0:
    told("ready")
    os._exit(7)
signal.signal(signal.SIGTERM, lambda *_: ctypes.string_at(0))
tell("ready")
while True:
    time.sleep(1)
"""

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

RAISES_WHEN_TOLD = """
def raises(*_):
    with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
        json.dump({"message": {"extraInfo": {"timestamp": str(int(time.time()))}}}, file)
    os._exit(1)

if rank == 0:
    told("pid")
    os._exit(7)
signal.signal(signal.SIGTERM, raises)
tell("pid")
time.sleep(600)
"""

CASES = [
    ("how = 'SIGSEGV'" + CRASHES_SLOWLY, 1, SEGV),
    ("how = 'SIGBUS'" + CRASHES_SLOWLY, 1, 128 + 7),
    ("how = 'SIGABRT'" + CRASHES_SLOWLY, 0, 7),  # it may be a victim
    ("how = 'SIGABRT'" + FAILS_AS_A_VICTIM, 1, ABRT),
    (EXITS_SLOWLY, 1, 7),
    (ABORTS_SLOWLY, 1, ABRT),
    (VICTIM_ABORTS, 0, 7),
    (VICTIM_SAYS_SO, 0, 7),
    (CRASHES_WHEN_TOLD, 0, 7),
    (RAISES_AND_ENDS_LATE, 1, 1),
    (RAISES_WHEN_TOLD, 0, 7),
]


@pytest.mark.parametrize(
    ("script", "first", "status"),
    CASES,
    ids=[
        "SEGV", "BUS", "ABRT", "ABRT of a peer", "an exit that an abort follows",
        "ABRT that is said", "a victim", "a victim that says it", "told", "record",
        "record when told",
    ],
)  # fmt: skip
def test_the_first_failure_is_named_and_not_the_one_that_is_seen_first(
    script: str, first: int, status: int, tmp_path: Path
) -> None:
    program, result = tmp_path / "script.py", tmp_path / "result.json"
    program.write_text(COMMON + script)
    environ = {"HERE": str(tmp_path)}
    words = ("--nproc", 2, "--result", result, program)
    with launched(*words, directory=tmp_path, environ=environ) as one:
        assert one.status() == status, one.stderr
        assert f"failed first: rank {first} " in one.stderr
    record = json.loads(result.read_text())
    assert (record["first_failure"], record["status"]) == (first, status)


@pytest.mark.full
def test_the_first_failure_is_named_by_the_line_of_a_restart(tmp_path: Path) -> None:
    program = tmp_path / "script.py"
    program.write_text(
        f"{COMMON}\nif os.environ['TORCHELASTIC_RESTART_COUNT'] == '1':\n    sys.exit()\n"
        f"how = 'SIGSEGV'\n{CRASHES_SLOWLY}"
    )
    result = tmp_path / "result.json"
    words = ("--nproc", 2, "--max-restarts", 1, "--result", result, program)
    with launched(*words, directory=tmp_path, environ={"HERE": str(tmp_path)}) as one:
        assert one.status() == 0, one.stderr
        (line,) = [line for line in one.stderr.splitlines() if "restart 1 of 1" in line]
        assert "rank 1 on" in line
        assert "died of SIGSEGV" in line
    (restart,) = json.loads(result.read_text())["restarts"]
    assert (restart["rank"], restart["status"]) == (1, SEGV)


def crash_or_fail(directory: str) -> None:
    if os.environ["RANK"] == "1":
        Path(directory, "pid").write_text(str(os.getpid()))
        os.kill(os.getpid(), 11)
    scope = {"__name__": "worker"}
    os.environ["HERE"] = directory
    exec(COMMON + "pid = ''\nwhile not pid:\n    told('pid')\n    pid = open('pid').read()\n"
         "wait_until_it_dies(int(pid))", scope)  # fmt: skip
    raise ValueError("because of it")


def test_a_program_that_launches_is_told_the_first_failure(tmp_path: Path) -> None:
    with pytest.raises(WorkerError) as failed:
        spawnlaunch.launch(partial(crash_or_fail, str(tmp_path)), nproc=2)
    assert (failed.value.rank, failed.value.status) == (1, SEGV)
