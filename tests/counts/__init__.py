"""What a launch costs its reader and its ranks, in numbers that no other work changes.

    python -m tests.counts            one launch on this machine and one task of a step
    python -m tests.counts --each     and the functions that are counted, by their files

functions, files   that the launcher enters, its guard and its workers up to their exec
modules            that it imports, Python's own aside
look-ups           stat and open as strace(1) sees them, beyond those of a Python that does nothing
lines              of code: of the launcher and of its core, of bench, check, train and the tests
complexity         of functions, their nesting, and imports within them
rooms              which imports which

`limits` has what each may come to; tests/test_counts.py and tests/test_rooms.py hold them.
"""
