"""Read PCI functions, and the CPUs next to them.

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
UNASSIGNED = 0xFF00  # the class of TPUs
INFINIBAND, ETHERNET = 0x0207, 0x0200
GRAPHICS = frozenset({VGA, DISPLAY_3D, DISPLAY_OTHER, ACCELERATOR})
_DEVICES = GRAPHICS | {UNASSIGNED}
_NETWORK = frozenset({INFINIBAND, ETHERNET})


class Function(records.NamedTuple):
    """A PCI function of a graphics, accelerator or network class."""

    address: str
    pci_class: int  # base class and subclass, such as 0x0302
    vendor: int | None


class Bus(records.NamedTuple):
    """The functions of the PCI bus, and the groups of CPUs that give their places."""

    root: str
    functions: list[Function]  # in the order of their addresses
    online: cpuset.CpuSet
    numa: tuple[hardware.Numa, ...]
    packages: tuple[cpuset.CpuSet, ...] = ()  # where there are no NUMA nodes

    @property
    def graphics(self) -> list[Function]:
        """The display controllers and accelerators."""
        return [each for each in self.functions if each.pci_class in GRAPHICS]

    def place(self, address: str) -> tuple[int | None, cpuset.CpuSet | None]:
        """Return the NUMA node and CPUs next to a function; `Device` has the meaning of None.

        The CPUs are those of local_cpulist, else of local_cpus, else of the NUMA node, else of the
        nearest nodes that have some. local_cpulist can be finer than the NUMA node (on MI250X it is
        one L3 group). Where the firmware named no node (-1), or the kernel knows none, the kernel
        puts every CPU into that list: on a machine with several nodes or packages that means
        nothing, and the result is None.
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
        if stated is None:  # neither file exists
            node = next((id for id, cpus in homes.items() if local <= cpus), None)
        return node, local

    def _nearest(self, node: int | None) -> cpuset.CpuSet | None:
        """The CPUs of the NUMA nodes nearest to a node without CPUs; None where not known."""
        ways = next((each.distances for each in self.numa if each.id == node), ())
        cpus = {each.id: each.cpus for each in self.numa if each.cpus}
        near = [(distance, other) for other, distance in ways if other in cpus]
        least = min(near, default=(0, 0))[0]
        return cpuset.EMPTY.union(*(cpus[o] for distance, o in near if distance == least)) or None

    def driver(self, address: str) -> str:
        """The kernel's driver of a function; "" for none, or where no link names it."""
        try:
            return os.path.basename(os.readlink(f"{self.root}{DEVICES}/{address}/driver"))
        except OSError:
            return ""


def order(address: str) -> tuple[int, str]:
    """Return a key that sorts addresses as CUDA, ROCm and Slurm do: by domain, bus, slot.

    Names of device files come last, and keep their order.
    """
    domain, _, rest = address.partition(":")
    return (int(domain, 16), rest) if is_address(address) else (sys.maxsize, "")


def read_functions(root: str, network: bool = True) -> list[Function]:
    """The graphics, accelerator and network functions in the order of their addresses."""
    base = root + DEVICES
    wanted = _DEVICES | _NETWORK if network else _DEVICES
    functions = []
    for address in sysfs.names(base):
        code = sysfs.number(f"{base}/{address}/class")
        if code is not None and code >> 8 in wanted and is_address(address):
            functions.append(Function(address, code >> 8, sysfs.number(f"{base}/{address}/vendor")))
    return sorted(functions, key=lambda function: order(function.address))


def is_address(name: str) -> bool:
    """Whether a name is a PCI address, which `order` can sort."""
    domain, _, rest = name.partition(":")
    return bool(domain and rest) and all(digit in "0123456789abcdefABCDEF" for digit in domain)
