"""Stacks as faulthandler and py-spy write them, and lines that are none."""

from spawnlaunch.rollcall.frames import Frame, Sieve, main_stack

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
    assert main_stack("thread 12 (sh) sleeping in do_wait") == ()


def test_a_sieve_takes_the_stacks_alone_however_they_are_cut():
    said = f"loss 0.5\n{TOLD}\nin the middle\n{TOLD}\n  indented\nand no newline".encode()
    left = b"loss 0.5\nin the middle\n  indented\nand no newline"
    for size in (1, 2, 7, 64, len(said)):
        sieve = Sieve()
        shown = b"".join(sieve(said[i : i + size]) for i in range(0, len(said), size))
        assert shown + sieve.rest() == left
        assert sieve.text.count("Current thread") == 2
        assert main_stack(sieve.text) == main_stack(TOLD)


def test_a_traceback_of_an_exception_is_no_stack():
    words = b'Traceback (most recent call last):\n  File "/x.py", line 3, in f\n    f()\n\nE: no\n'
    sieve = Sieve()
    assert sieve(words) + sieve.rest() == words
    assert sieve.text == ""


def test_an_unfinished_line_that_is_no_stack_is_not_held_back():
    sieve = Sieve()
    assert sieve(b"(Pdb) ") == b"(Pdb) "
