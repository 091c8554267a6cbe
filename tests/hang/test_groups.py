"""The roll call: who is in the same place, and how that is worded."""

from collections.abc import Iterable

import pytest

from spawnlaunch.hang.groups import Frame, StackText, groups, main_stack

TORCH = "/opt/venv/lib/python3.11/site-packages/torch"


def stack(*calls: tuple[str, str, int]) -> str:
    told = "".join(f'  File "{file}", line {line} in {name}\n' for name, file, line in calls)
    return f"Current thread 0x01 (most recent call first):\n{told}"


WAITS = stack(
    ("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 3245),
    ("wrapper", f"{TORCH}/distributed/c10d_logger.py", 83),
    ("step", "/home/me/train.py", 88),
    ("<module>", "/home/me/train.py", 120),
)
SAVES = stack(("save_checkpoint", "/me/checkpoint.py", 40), ("<module>", "/me/train.py", 99))
LOADS = stack(
    ("select", "/usr/lib/python3.11/selectors.py", 415),
    ("get", "/usr/lib/python3.11/multiprocessing/queues.py", 103),
    ("_worker_loop", f"{TORCH}/utils/data/_utils/worker.py", 275),
)


def worker(rank: int, text: str, how: str = "by itself") -> StackText:
    return StackText(rank, True, how, text)


def lines(answers: Iterable[StackText]) -> list[str]:
    return [f"  {group.line}" for group in groups(answers)]


def test_the_smallest_group_is_first_and_names_the_users_own_line():
    answers = [worker(rank, SAVES if rank == 2 else WAITS) for rank in range(8)]
    assert lines(answers) == [
        "  rank 2 is in save_checkpoint (checkpoint.py:40)",
        "  ranks 0-1,3-7 wait in all_reduce (train.py:88)",
    ]


def test_who_tells_makes_no_difference_where_the_stacks_are_equal():
    spied = (
        'Thread 7 (idle): "MainThread"\n'
        "    save_checkpoint (/me/checkpoint.py:40)\n    <module> (/me/train.py:99)\n"
    )
    assert lines([worker(0, SAVES), worker(1, spied, "by py-spy")]) == [
        "  ranks 0-1 are in save_checkpoint (checkpoint.py:40)"
    ]


INDUCTOR = "/tmp/torchinductor_me/qb/cqbjsxtwozwvrc7rpubqkfecoptrbdxrofuz4ac73hwe6putdghv.py"
MADE = ("<eval_with_key>.12", "<string>", "<frozen runpy>", "<__array_function__ internals>")
PYTHON = ("/usr/lib/python3/x.py", "/usr/lib/python3.9/x.py", "/usr/lib64/python3.9/x.py")


@pytest.mark.parametrize("file", [INDUCTOR, *MADE, *PYTHON])
@pytest.mark.parametrize("own", ["/me/qb/cab.py", "/me/lib/python/model.py", "<stdin>"])
def test_a_library_and_what_was_generated_are_no_lines_of_the_users(file: str, own: str):
    waits = stack(("all_reduce", f"{TORCH}/_ops.py", 9), ("forward", file, 5), ("step", own, 88))
    assert lines([worker(0, waits)]) == [f"  rank 0 is in forward ({own.rpartition('/')[2]}:88)"]


@pytest.mark.parametrize("begin", ["<frozen runpy>", "/venv/bin/my-train"])
def test_a_program_that_was_installed_is_the_users(begin: str):
    place = TORCH.rpartition("/")[0]
    inside = ("step", f"{place}/mine/loop.py", 88), ("<module>", f"{place}/mine/__main__.py", 1)
    waits = stack(
        ("wait", f"{TORCH}/x.py", 1), ("fit", f"{place}/hf/x.py", 2), *inside, ("", begin, 3)
    )
    assert lines([worker(0, waits)]) == ["  rank 0 is in fit (loop.py:88)"]


def test_processes_below_ranks_are_counted_by_themselves():
    below = [StackText(rank, False, "by py-spy", LOADS) for rank in (0, 0, 1)]
    assert lines([worker(0, WAITS), *below]) == [
        "  rank 0 waits in all_reduce (train.py:88)",
        "  3 processes below ranks 0-1 wait in select (selectors.py:415)",
    ]


def test_of_what_tells_no_stacks_the_programs_are_compared():
    how = "py-spy: no answer in 10 s"
    assert lines([worker(i, "in sh, without stacks\n", how) for i in (0, 1)]) == [
        f"  ranks 0-1 are in sh, without stacks ({how})"
    ]


TOLD = """\
Thread 0x00007fdb3ffdc6c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 982 in run
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Current thread 0x00007fdb40a3fb80 (most recent call first):
  File "/home/me/a train.py", line 38 in step
  File "/home/me/a train.py", line 40 in <module>
"""
SPIED = """\
Process 16307: python stuck.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 16310 (idle): "Thread-1 (in_a_thread)"
    wait_for_ever (/home/me/stuck.py:19)
    Thread._bootstrap (/usr/lib/python3.11/threading.py:1002)
Thread 16307 (active+gil): "MainThread"
    Lock.wait (/home/me/stuck.py:37)
    <module> (/home/me/stuck.py:38)
"""


def test_the_main_thread_is_found_wherever_it_stands():
    assert main_stack(TOLD) == (
        Frame("step", "/home/me/a train.py", 38),
        Frame("<module>", "/home/me/a train.py", 40),
    )
    assert main_stack(SPIED)[0] == Frame("Lock.wait", "/home/me/stuck.py", 37)
    assert main_stack("in sh, without stacks") == ()
