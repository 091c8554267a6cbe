"""What a launch costs its reader and its ranks, in numbers that no other work changes.

    python -m tests.counts            one launch on this machine and one task of a step
    python -m tests.counts --each     and the functions that are counted, by their files

functions, files   that the launcher enters, its guard and its workers up to their exec
modules            that it imports beyond those of a Python that does nothing
look-ups           stat and open as strace(1) sees them, beyond those of a Python that does nothing
lines              of code, without comments and docstrings: of the launcher and of its core (what
                   no entry of BESIDE names), of bench, check, train and the tests

tests/test_budgets.py has the three that have a budget.
"""
