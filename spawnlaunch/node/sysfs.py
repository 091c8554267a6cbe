"""Read small files below a root directory; a missing or forbidden file gives None, no error.

These reads are most of the launcher's own time: a large node has a thousand of these files, so each
is one open, one or two reads and one close, without a file object around them.
"""

from __future__ import annotations

from spawnlaunch.base import cpuset, machine, reading

# The ends of the names of files with a mask: thread_siblings, shared_cpu_map, cpumap, local_cpus.
# Other files have lists; a few old kernels and snapshots have the masks only.
_MASKS = ("_siblings", "map", "local_cpus")


def text(path: str) -> str | None:
    """The text of a file without surrounding white space; None where it cannot be read."""
    content = reading.file_text(path)
    return None if content is None else content.strip()


def number(path: str) -> int | None:
    """The number in a file, decimal or with 0x; None where there is none."""
    try:
        return int(text(path) or "", 0)
    except ValueError:
        return None


def cpus(*paths: str) -> cpuset.CpuSet | None:
    """The CPUs or NUMA nodes of the first file that has any, in a list or a mask."""
    for path in paths:
        content = text(path)
        try:
            parse = cpuset.parse_mask if path.endswith(_MASKS) else cpuset.parse
            if content and (parsed := parse(content)):
                return parsed
        except cpuset.CpuSetError:
            continue
    return None


def fields(path: str, separator: str | None = None) -> dict[str, str]:
    """The lines `name value` of a file, or `name: value`; empty where there is no such file."""
    values = {}
    for line in (text(path) or "").splitlines():
        parts = line.split(separator, 1)
        if len(parts) == 2:
            values[parts[0].strip()] = parts[1].strip()
    return values


def names(path: str) -> list[str]:
    """The entries of a directory, unordered; empty where there is no such directory."""
    try:
        return machine.listdir(path)
    except OSError:
        return []


def numbers(path: str, prefix: str) -> list[int]:
    """The numbers after the prefix in a directory's entries, ascending: 0, 1 for gt0, gt1."""
    start = len(prefix)
    ends = (name[start:] for name in names(path) if name.startswith(prefix))
    return sorted(int(end) for end in ends if reading.is_number(end))
