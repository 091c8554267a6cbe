"""Everything that one GPU can show, in some minutes, on a machine that has nothing but Python.

    make gpu                                    all of it; a table, and what did not run by name
    python -m tests.gpu --json gpu.json         figures too
    python -m tests.gpu --only nccl,loop        those that have one of these in their name

It needs no pytest: a machine that is lent for minutes may have none. `machine` finds out which
Python there has a PyTorch that sees a device, or makes one from wheels that were carried along.
A check (see `check`) says by name what it needs; where that is missing it is listed as not run and
counts as nothing.
"""

from tests.gpu.check import CHECKS, Check


def all_checks() -> list[Check]:
    """Every check, in the order in which they run."""
    from tests.gpu import collectives, dying, measuring, seeing, training

    assert all((seeing, collectives, dying, training, measuring))
    order = ("seeing", "collectives", "dying", "training", "measuring")
    return sorted(CHECKS, key=lambda each: order.index(each.show.__module__.rsplit(".", 1)[1]))
