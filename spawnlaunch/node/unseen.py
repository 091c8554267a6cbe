"""Explain why no device is found on a machine where CUDA may still see some.

WSL2 shows no GPU in /sys: there is /dev/dxg, and on the PCI bus an adapter of Microsoft
(1414:008e), which snapshots show. A Tegra board (`nvidia,tegra` in /proc/device-tree/compatible, a
file of words that end in a zero byte) and a loaded driver have device files, but a container may
not have been given them.
"""

from __future__ import annotations

import os

from spawnlaunch.node import nvidia, pci, sysfs

COMPATIBLE = "/proc/device-tree/compatible"
CONTROL = "/dev/nvidiactl"
_WSL_ADAPTER = 0x008E


def why_none(root: str) -> str:
    """Return one line on why; "" where nothing shows a device. `root`: directory of a snapshot."""
    root = root.rstrip("/")
    if os.path.exists(f"{root}/dev/dxg") or (root and _has_wsl_adapter(root)):
        return (
            "this is WSL, which shows no NVIDIA device in /sys, nor another GPU, so nothing here "
            "counts them"
        )
    words = (sysfs.text(root + COMPATIBLE) or "").split("\0")
    if board := next((word for word in words if word.startswith("nvidia,tegra")), ""):
        files = ", ".join(f"/dev/{name}" for name in ("nvidia0", *nvidia.OF_A_BOARD))
        return f"this is a Tegra board ({board}), and none of {files} is here"
    driver = (each for each in (nvidia.NVIDIA_DRIVER, CONTROL) if os.path.exists(root + each))
    if place := next(driver, ""):
        return f"an NVIDIA driver is loaded ({place}), and no /dev/nvidia<N> is here"
    return ""


def _has_wsl_adapter(root: str) -> bool:
    return any(
        sysfs.number(f"{root}{pci.DEVICES}/{each.address}/device") == _WSL_ADAPTER
        for each in pci.read_functions(root, network=False)
        if each.vendor == pci.MICROSOFT
    )
