"""Figures of devices: from files that stand in for those of the AMD and Intel drivers, and from a
library that stands in for NVML.

No device is there: that drivers write such files, and NVML gives such answers, is what their
documents say (spawnlaunch/watch/device_use.py names them). `python3 -m tests.gpu` asks a real one.
"""

import sys
from itertools import count
from pathlib import Path

import pytest

from spawnlaunch import node as nodes
from spawnlaunch.node import pci
from spawnlaunch.watch import device_use
from spawnlaunch.watch.device_use import DeviceUse, Meter
from spawnlaunch.watch.find import Rank
from tests import machines
from tests.machines.tree import build, write

AMD_FILES = {
    "gpu_busy_percent": "87", "mem_info_vram_used": "34359738368",
    "mem_info_vram_total": "68719476736", "hwmon/hwmon4/temp1_input": "61000",
    "hwmon/hwmon4/freq1_input": "1700000000",
}  # fmt: skip
I915_FILES = {"hwmon/hwmon2/temp1_input": "55000", "drm/card1/gt_act_freq_mhz": "1550"}
XE_FILES = {"hwmon/hwmon2/temp1_input": "48000", "tile0/gt0/freq0/act_freq": "2400"}

PIDS = count(100)
# As nvidia-ml-py 13 has them: the names, and what is an attribute and what an argument.
PYNVML = """
class NVMLError(Exception): pass
class Figures:
    def __init__(self, **values): self.__dict__.update(values)
NVML_TEMPERATURE_GPU, NVML_CLOCK_SM, nvmlMemory_v2 = 0, 1, 0x02000028
ADDRESSES = [b"0000:19:00.0", b"0000:3b:00.0"]
def nvmlInit(): pass
def nvmlDeviceGetHandleByPciBusId(address):
    if address not in ADDRESSES: raise NVMLError("not found")
    return ADDRESSES.index(address)
def nvmlDeviceGetUtilizationRates(handle): return Figures(gpu=90 + handle, memory=10)
def nvmlDeviceGetMemoryInfo(handle, version=None):
    assert version == nvmlMemory_v2
    return Figures(used=(1 + handle) << 30, total=80 << 30, free=0, reserved=0)
def nvmlDeviceGetTemperature(handle, sensor):
    assert sensor == NVML_TEMPERATURE_GPU
    return 40 + handle
def nvmlDeviceGetClockInfo(handle, kind):
    assert kind == NVML_CLOCK_SM
    if handle == 1: raise NVMLError("not supported")
    return 1980
"""


def rank(local_rank: int, **environ: str) -> Rank:
    """A rank that sees all devices, but for what its environment says."""
    return Rank("launch", "job", local_rank, local_rank, 2, next(PIDS), 1, 1, (), environ)


def shown(node: nodes.Node) -> nodes.Node:
    """The node as its drivers number the devices, each of which may be used."""
    numbered = (device._replace(ordinal=i, usable=True) for i, device in enumerate(node.devices))
    return node._replace(devices=tuple(numbered))


def test_figures_of_amd_are_those_of_the_files_of_its_device(tmp_path: Path) -> None:
    node = shown(nodes.read(str(build(tmp_path, machines.LUMI))))
    second = node.devices[1]
    for name, text in AMD_FILES.items():
        write(tmp_path / pci.DEVICES.lstrip("/") / second.address / name, text)
    meter = Meter(node, str(tmp_path))
    assert meter.of(rank(1)) == DeviceUse(
        *(1, second.address, "amd"),
        use=87, memory=32 << 30, memory_total=64 << 30, temperature=61.0, clock=1700.0,
    )  # fmt: skip
    assert meter.of(rank(0)) == DeviceUse(0, node.devices[0].address, "amd")
    assert meter.of(rank(0, ROCR_VISIBLE_DEVICES="1")) == meter.of(rank(1))


@pytest.mark.parametrize(
    ("files", "temperature", "clock"), [(I915_FILES, 55.0, 1550), (XE_FILES, 48.0, 2400)]
)
def test_figures_of_intel_are_what_its_drivers_tell(
    tmp_path: Path, files: dict[str, str], temperature: float, clock: float
) -> None:
    for name, text in files.items():
        write(tmp_path / name, text)
    told = device_use.of_sysfs(str(tmp_path))
    assert (told["temperature"], told["clock"]) == (temperature, clock)
    assert told["use"] is told["memory"] is told["memory_total"] is None


def test_where_a_driver_tells_nothing_nothing_is_known(tmp_path: Path) -> None:
    assert set(device_use.of_sysfs(str(tmp_path)).values()) == {None}
    write(tmp_path / "gpu_busy_percent", "not a number")
    assert device_use.of_sysfs(str(tmp_path))["use"] is None


@pytest.fixture
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> nodes.Node:
    """A node with two devices of NVIDIA's, and a library that knows them."""
    write(tmp_path / "pynvml.py", PYNVML)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    node = shown(nodes.read(str(build(tmp_path / "root", machines.PERLMUTTER))))
    addresses = ("0000:19:00.0", "0000:3b:00.0", "0000:d8:00.0")
    known = (d._replace(address=a) for d, a in zip(node.devices, addresses, strict=False))
    return node._replace(devices=tuple(known))


def test_figures_of_nvidia_are_nvmls_answers_about_the_address(two_gpus: nodes.Node) -> None:
    meter = Meter(two_gpus)
    first, second = meter.of(rank(0)), meter.of(rank(1))
    assert first == DeviceUse(
        *(0, "0000:19:00.0", "nvidia"),
        use=90.0, memory=1 << 30, memory_total=80 << 30, temperature=40.0, clock=1980.0,
    )  # fmt: skip
    assert (second.use, second.memory, second.temperature) == (91.0, 2 << 30, 41.0)
    assert second.clock is None  # which this device refuses
    assert meter.of(rank(0, CUDA_VISIBLE_DEVICES="1")) == second


def test_a_device_that_nvml_does_not_find_is_named_all_the_same(two_gpus: nodes.Node) -> None:
    assert Meter(two_gpus).of(rank(2)) == DeviceUse(2, "0000:d8:00.0", "nvidia")


def test_without_the_library_a_device_is_named(
    two_gpus: nodes.Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    write(tmp_path / "pynvml.py", "raise ImportError('no driver')")
    assert Meter(two_gpus).of(rank(0)) == DeviceUse(0, "0000:19:00.0", "nvidia")


def test_a_node_without_devices_has_none() -> None:
    here = nodes.read(everything=False)._replace(devices=())
    assert Meter(here).of(rank(0)) is None
