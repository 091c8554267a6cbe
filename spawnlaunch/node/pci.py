"""PCI functions: which there are, and which CPUs are next to them.

Source: Documentation/ABI/testing/sysfs-bus-pci of the kernel; the class codes are those of the PCI
Code and ID Assignment Specification.
"""

from __future__ import annotations

import os

from spawnlaunch.cpuset import CpuSet
from spawnlaunch.node import files
from spawnlaunch.node.model import Numa
from spawnlaunch.records import NamedTuple

DEVICES = "/sys/bus/pci/devices"

NVIDIA, AMD, INTEL, HPE = 0x10DE, 0x1002, 0x8086, 0x17DB

VGA, DISPLAY_3D, DISPLAY_OTHER, ACCELERATOR = 0x0300, 0x0302, 0x0380, 0x1200
INFINIBAND, ETHERNET = 0x0207, 0x0200
_GRAPHICS = frozenset({VGA, DISPLAY_3D, DISPLAY_OTHER, ACCELERATOR})
_NETWORK = frozenset({INFINIBAND, ETHERNET})


class Function(NamedTuple):
    """A PCI function of a class that matters here."""

    address: str
    pci_class: int  # base class and subclass, such as 0x0302
    vendor: int | None


class Place(NamedTuple):
    """Where a function is; see `Device` for the meaning of None."""

    numa: int | None
    local_cpus: CpuSet | None


def order(address: str) -> tuple[int, str]:
    """A key that sorts addresses as CUDA, ROCm and Slurm number them: by domain, bus, slot."""
    domain, _, rest = address.partition(":")
    return int(domain, 16), rest


def functions(root: str) -> list[Function]:
    """Graphics, accelerator and network functions in the order of their addresses."""
    base = root + DEVICES
    found = []
    for address in sorted((n for n in files.names(base) if _is_address(n)), key=order):
        code = files.number(f"{base}/{address}/class")
        if code is not None and code >> 8 in _GRAPHICS | _NETWORK:
            vendor = files.number(f"{base}/{address}/vendor")
            found.append(Function(address, code >> 8, vendor))
    return found


def is_graphics(function: Function) -> bool:
    """Whether the function is a display controller or an accelerator."""
    return function.pci_class in _GRAPHICS


def _is_address(name: str) -> bool:
    domain, _, rest = name.partition(":")
    return bool(domain and rest) and all(digit in "0123456789abcdefABCDEF" for digit in domain)


def may_open(dev: str | None, minor: int | None) -> bool | None:
    """Whether this process may open the render node below `dev`; None where nobody can tell.

    access(2) asks the control group too (inode_permission in fs/namei.c of the kernel).
    """
    if dev is None or minor is None:
        return None
    return os.access(f"{dev}/dri/renderD{minor}", os.R_OK | os.W_OK)


def place(root: str, address: str, online: CpuSet, numa: tuple[Numa, ...]) -> Place:
    """The CPUs next to a function: local_cpulist, else local_cpus, else those of its NUMA node.

    local_cpulist can be finer than the NUMA node (on MI250X it is one L3 group). Where the firmware
    named no node (-1), the kernel puts every CPU into that list: on a machine with several nodes
    that says nothing, and nothing is what is returned.
    """
    directory = f"{root}{DEVICES}/{address}"
    stated = files.number(f"{directory}/numa_node")
    node = stated if stated is not None and stated >= 0 else None
    local = files.cpus(f"{directory}/local_cpulist") or files.mask(f"{directory}/local_cpus")
    local = local & online if local else None
    if not local:
        return Place(node, _cpus_of(node, numa))
    if node is None and local == online and sum(1 for each in numa if each.cpus) > 1:
        return Place(None, None)
    if stated is None:
        node = _node_around(local, numa)
    return Place(node, local)


def _cpus_of(node: int | None, numa: tuple[Numa, ...]) -> CpuSet | None:
    for each in numa:
        if each.id == node and each.cpus:
            return each.cpus
    return None


def _node_around(cpus: CpuSet, numa: tuple[Numa, ...]) -> int | None:
    """The NUMA node that holds all of the CPUs."""
    for each in numa:
        if cpus <= each.cpus:
            return each.id
    return None
