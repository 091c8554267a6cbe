"""The use of a rank's device: from sysfs for AMD and Intel, from NVML for NVIDIA.

NVML is asked through nvidia-ml-py (the extra `nvidia`); without it the device is named, and its
figures are not known. Files of sysfs, below the device's directory in /sys/bus/pci/devices:

    gpu_busy_percent                       amdgpu: use, in percent
    mem_info_vram_used, mem_info_vram_total  amdgpu: bytes
    hwmon/hwmon*/temp1_input               amdgpu, i915, xe: thousandths of a degree
    hwmon/hwmon*/freq1_input               amdgpu: hertz
    drm/card*/gt_act_freq_mhz              i915;  tile0/gt0/freq0/act_freq  xe: MHz

Sources: the kernel's Documentation/gpu/amdgpu/thermal.rst and driver-misc.rst, and Documentation/
ABI/testing/sysfs-driver-intel-i915-hwmon and -xe; nvmlDeviceGetUtilizationRates and its neighbours
in NVIDIA's NVML reference. Intel's drivers tell use and memory per client only: not known here.
"""

from __future__ import annotations

from contextlib import suppress
from glob import glob
from typing import Any, NamedTuple

from spawnlaunch import node as nodes
from spawnlaunch.node import hardware, pci, sysfs, visible
from spawnlaunch.watch import find


class DeviceUse(NamedTuple):
    """The figures of a device at a moment. None: not known."""

    number: int  # among all devices of the node, in the order of their addresses
    address: str
    vendor: str
    use: float | None = None  # percent of the time
    memory: int | None = None  # bytes in use, by any process
    memory_total: int | None = None
    temperature: float | None = None  # degrees Celsius
    clock: float | None = None  # MHz


class Meter:
    """Reads each device once per sample, however many ranks share it.

    `root` is of a snapshot.
    """

    def __init__(self, node: hardware.Node | None = None, root: str = "") -> None:
        self._node = nodes.read(everything=False) if node is None else node
        self._root = root.rstrip("/")
        self._nvml = _nvml() if any(d.vendor == "nvidia" for d in self._node.devices) else None
        self._uses: dict[int, DeviceUse] = {}
        self._of: dict[tuple[int, int], int | None] = {}  # the device's number, by process

    def begin(self) -> None:
        """Begin a sample: the figures of the one before are forgotten."""
        self._uses.clear()

    def of(self, rank: find.Rank) -> DeviceUse | None:
        """The use of a rank's device.

        None: the rank has no device, or it is not known which.
        """
        if not self._node.devices:
            return None
        key = (rank.pid, rank.start)
        if key not in self._of:
            self._of[key] = visible.visible(self._node, rank.environ).device_of(rank.local_rank)
        number = self._of[key]
        if number is None:
            return None
        if number not in self._uses:
            device = self._node.devices[number]
            figures: dict[str, Any] = {}
            if device.vendor != "nvidia":
                figures = of_sysfs(f"{self._root}{pci.DEVICES}/{device.address}")
            elif self._nvml:
                figures = self._nvml.figures(device)
            use = DeviceUse(device.number, device.address, device.vendor)
            self._uses[number] = use._replace(**figures)
        return self._uses[number]


def of_sysfs(directory: str) -> dict[str, Any]:
    """The figures of a device from the files of its driver."""
    temperature = _first(f"{directory}/hwmon/hwmon*/temp1_input")
    hertz = _first(f"{directory}/hwmon/hwmon*/freq1_input")
    mhz = _first(f"{directory}/drm/card*/gt_act_freq_mhz", f"{directory}/tile0/gt0/freq0/act_freq")
    return {
        "use": sysfs.number(f"{directory}/gpu_busy_percent"),
        "memory": sysfs.number(f"{directory}/mem_info_vram_used"),
        "memory_total": sysfs.number(f"{directory}/mem_info_vram_total"),
        "temperature": None if temperature is None else temperature / 1000,
        "clock": mhz if hertz is None else hertz / 1e6,
    }


def _first(*patterns: str) -> int | None:
    for pattern in patterns:
        for path in sorted(glob(pattern)):
            if (number := sysfs.number(path)) is not None:
                return number
    return None


class _Nvml:
    """NVIDIA's library, which may refuse any figure of any device."""

    def __init__(self, library: Any) -> None:
        self._library = library
        library.nvmlInit()

    def figures(self, device: nodes.Device) -> dict[str, Any]:
        """The library's figures for a device, found by its address."""
        nvml, figures = self._library, dict[str, Any]()
        try:
            handle = nvml.nvmlDeviceGetHandleByPciBusId(device.address.encode())
        except nvml.NVMLError:
            return {}
        with suppress(nvml.NVMLError):
            figures["use"] = float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        with suppress(nvml.NVMLError):
            memory = nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2)  # as nvidia-smi
            figures["memory"], figures["memory_total"] = int(memory.used), int(memory.total)
        with suppress(nvml.NVMLError):
            kind = nvml.NVML_TEMPERATURE_GPU
            figures["temperature"] = float(nvml.nvmlDeviceGetTemperature(handle, kind))
        with suppress(nvml.NVMLError):
            figures["clock"] = float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
        return figures


def _nvml() -> _Nvml | None:
    try:
        import pynvml

        return _Nvml(pynvml)
    except Exception:  # the library is not installed, or there is no driver that fits
        return None
