"""CPU sets as the kernel writes them (cpuset(7), "List format")."""

from collections.abc import Iterable


def format(cpus: Iterable[int]) -> str:
    """
    >>> format({0, 1, 2, 3, 8})
    '0-3,8'
    """
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)
