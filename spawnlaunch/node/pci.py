"""PCI functions: which there are, and which CPUs are next to them.

Source: Documentation/ABI/testing/sysfs-bus-pci of the kernel; the class codes are those of the PCI
Code and ID Assignment Specification.
"""

from __future__ import annotations

import os
import sys

from spawnlaunch.base import cpuset, records
from spawnlaunch.node import hardware, sysfs

DEVICES = "/sys/bus/pci/devices"

NVIDIA, AMD, INTEL, HPE, MICROSOFT = 0x10DE, 0x1002, 0x8086, 0x17DB, 0x1414
HABANA, HUAWEI, GOOGLE = 0x1DA3, 0x19E5, 0x1AE0

VGA, DISPLAY_3D, DISPLAY_OTHER, ACCELERATOR = 0x0300, 0x0302, 0x0380, 0x1200
UNASSIGNED = 0xFF00  # what TPUs have
INFINIBAND, ETHERNET = 0x0207, 0x0200
GRAPHICS = frozenset({VGA, DISPLAY_3D, DISPLAY_OTHER, ACCELERATOR})
_DEVICES = GRAPHICS | {UNASSIGNED}
_NETWORK = frozenset({INFINIBAND, ETHERNET})


class Function(records.NamedTuple):
    """A PCI function of a class that matters here."""

    address: str
    pci_class: int  # base class and subclass, such as 0x0302
    vendor: int | None


class Bus(records.NamedTuple):
    """The PCI bus, and what is needed to find the place of a function."""

    root: str
    functions: list[Function]  # in the order of their addresses
    online: cpuset.CpuSet
    numa: tuple[hardware.Numa, ...]
    packages: tuple[cpuset.CpuSet, ...] = ()  # where there are no NUMA nodes

    @property
    def graphics(self) -> list[Function]:
        """Display controllers and accelerators."""
        return [each for each in self.functions if each.pci_class in GRAPHICS]

    def place(self, address: str) -> tuple[int | None, cpuset.CpuSet | None]:
        """NUMA node and CPUs next to a function; see `Device` for the meaning of None.

        local_cpulist, else local_cpus, else the CPUs of the NUMA node, else those of the nearest
        nodes that have some. local_cpulist can be finer than the NUMA node (on MI250X it is one L3
        group). Where the firmware named no node (-1), or the kernel knows none, the kernel puts
        every CPU into that list: on a machine with several nodes, or packages, that says nothing,
        and nothing is what is returned.
        """
        if not is_address(address):
            return None, None
        directory = f"{self.root}{DEVICES}/{address}"
        stated = sysfs.number(f"{directory}/numa_node")
        node = stated if stated is not None and stated >= 0 else None
        listed = sysfs.cpus(f"{directory}/local_cpulist", f"{directory}/local_cpus")
        local = listed and listed & self.online
        homes: dict[int | None, cpuset.CpuSet] = {n.id: n.cpus for n in self.numa if n.cpus}
        is_divided = node not in homes if len(homes) > 1 else not homes and len(self.packages) != 1
        if not local or (local == self.online and is_divided):
            return node, homes.get(node) or self._nearest(node)
        if stated is None:  # there is no such file
            node = next((id for id, cpus in homes.items() if local <= cpus), None)
        return node, local

    def _nearest(self, node: int | None) -> cpuset.CpuSet | None:
        """The CPUs of the NUMA nodes nearest to one that has none; None where that is not known."""
        ways = next((each.distances for each in self.numa if each.id == node), ())
        cpus = {each.id: each.cpus for each in self.numa if each.cpus}
        near = [(distance, other) for other, distance in ways if other in cpus]
        least = min(near, default=(0, 0))[0]
        return cpuset.EMPTY.union(*(cpus[o] for distance, o in near if distance == least)) or None

    def driver(self, address: str) -> str:
        """The kernel's driver that serves a function; "" for none, or where no link says so."""
        try:
            return os.path.basename(os.readlink(f"{self.root}{DEVICES}/{address}/driver"))
        except OSError:
            return ""


def order(address: str) -> tuple[int, str]:
    """A key that sorts addresses as CUDA, ROCm and Slurm number them: by domain, bus, slot.

    Names of device files come last, in the order that they had.
    """
    domain, _, rest = address.partition(":")
    return (int(domain, 16), rest) if is_address(address) else (sys.maxsize, "")


def read_functions(root: str, network: bool = True) -> list[Function]:
    """Graphics, accelerator and network functions in the order of their addresses."""
    base = root + DEVICES
    wanted = _DEVICES | _NETWORK if network else _DEVICES
    found = []
    for address in sysfs.names(base):
        code = sysfs.number(f"{base}/{address}/class")
        if code is not None and code >> 8 in wanted and is_address(address):
            found.append(Function(address, code >> 8, sysfs.number(f"{base}/{address}/vendor")))
    return sorted(found, key=lambda function: order(function.address))


def is_address(name: str) -> bool:
    """Whether `order` can sort it."""
    domain, _, rest = name.partition(":")
    return bool(domain and rest) and all(digit in "0123456789abcdefABCDEF" for digit in domain)
