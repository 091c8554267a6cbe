"""Stacks as faulthandler and py-spy write them."""

from spawnlaunch.hang.frames import Frame, main_stack

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
    assert main_stack("in sh, whose stacks nobody tells") == ()
