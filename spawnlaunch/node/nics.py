"""High-speed network adapters: InfiniBand, RoCE and EFA by /sys/class/infiniband, Slingshot by cxi.

Adapters that no driver has named yet (or whose class directory a snapshot lacks) are taken from the
PCI bus where their class or vendor leaves no doubt, under their address.
"""

import os

from spawnlaunch.cpuset import CpuSet
from spawnlaunch.node import files, pci
from spawnlaunch.node.model import Nic, Numa

CLASSES = ("/sys/class/infiniband", "/sys/class/cxi")


def read(
    root: str, functions: list[pci.Function], online: CpuSet, numa: tuple[Numa, ...]
) -> tuple[Nic, ...]:
    """The adapters in the order of their addresses."""
    named = {
        os.path.basename(os.path.realpath(f"{root}{directory}/{name}/device")): name
        for directory in CLASSES
        for name in sorted(files.names(root + directory), reverse=True)
    }
    fast = {f.address for f in functions if _is_fast(f)} | {a for a in named if a.count(":") == 2}
    return tuple(
        Nic(named.get(address, address), address, *pci.place(root, address, online, numa))
        for address in sorted(fast, key=pci.order)
    )


def _is_fast(function: pci.Function) -> bool:
    slingshot = function.vendor == pci.HPE and function.pci_class == pci.ETHERNET
    return slingshot or function.pci_class == pci.INFINIBAND
