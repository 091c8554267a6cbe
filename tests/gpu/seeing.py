"""Which devices there are, what they are called, which CPUs are next to them, who sees which."""

import csv
import json
import subprocess

from spawnlaunch import node
from spawnlaunch.base import cpuset
from spawnlaunch.node.hardware import Device
from spawnlaunch.node.visible import visible
from tests.gpu.check import Figures, NotRun, check
from tests.gpu.machine import Machine


def _nvidia() -> list[Device]:
    return [device for device in node.read().devices if device.vendor == "nvidia"]


def _usable() -> list[Device]:
    return [device for device in _nvidia() if device.usable is not False]


def _query(*fields: str) -> list[dict[str, str]]:
    words = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    rows = csv.reader(text.splitlines(), skipinitialspace=True)
    return [dict(zip(fields, row, strict=True)) for row in rows]


def _bus(text: str) -> str:
    """00000000:19:00.0, as nvidia-smi writes it, to 0000:19:00.0, as sysfs does."""
    domain, _, rest = text.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


@check("nvidia-smi")
def discovery_agrees_with_nvidia_smi(machine: Machine) -> Figures:
    """Address, UUID and minor number of each device are those of `nvidia-smi -q`."""
    smi = {_bus(row["pci.bus_id"]): row for row in _query("pci.bus_id", "uuid", "index")}
    ours = {device.address: device for device in _usable()}
    assert sorted(smi) == sorted(ours), f"nvidia-smi {sorted(smi)}, here {sorted(ours)}"
    for address, device in ours.items():
        told = smi[address]["uuid"]
        assert device.uuid in (None, told), f"{address}: {device.uuid}, not {told}"
    by_smi = [_bus(row["pci.bus_id"]) for row in _query("index", "pci.bus_id")]
    assert [device.address for device in _usable()] == by_smi, "not in nvidia-smi's order"
    known = sum(device.uuid is not None for device in ours.values())
    minors = subprocess.run(["nvidia-smi", "-q"], capture_output=True, text=True).stdout
    told_minors = [
        int(line.split(":")[1]) for line in minors.splitlines() if "Minor Number" in line
    ]
    for device, told_minor in zip(_usable(), told_minors, strict=True):
        assert device.minor in (None, told_minor), f"{device.address}: minor {device.minor}"
    return {"devices": len(ours), "with UUID": known, "minors": told_minors}


@check("NVIDIA")
def discovery_agrees_with_torch(machine: Machine) -> Figures:
    """As many devices as PyTorch counts, at the addresses that it names, in its order."""
    ours = [device.address for device in _usable()]
    theirs = [
        f"{each['domain']:04x}:{each['bus']:02x}:{each['device']:02x}.0"
        for each in machine.devices
        if each["bus"] is not None
    ]
    if not theirs:
        assert len(ours) == len(machine.devices), f"{len(ours)}, not {len(machine.devices)}"
        return {"devices": len(ours), "addresses": "this PyTorch does not tell them"}
    assert ours == theirs, f"{ours}, not {theirs}"
    return {"devices": len(ours), "addresses": ours}


@check("nvidia-smi")
def local_cpus_agree_with_nvidia_smi_topo(machine: Machine) -> Figures:
    """The CPUs and the NUMA node next to each device are those of `nvidia-smi topo -m`."""
    text = subprocess.run(["nvidia-smi", "topo", "-m"], capture_output=True, text=True).stdout
    header, *rows = [line for line in text.splitlines() if line.strip()]
    # Columns are parted by tabs, the last of which are "CPU Affinity" and "NUMA Affinity".
    names = [
        name.strip() for name in header.replace("\x1b[4m", "").replace("\x1b[0m", "").split("\t")
    ]
    if "CPU Affinity" not in names:
        raise NotRun("this nvidia-smi prints no CPU Affinity")
    column = names.index("CPU Affinity")
    told = [row.split("\t")[column].strip() for row in rows if row.startswith("GPU")]
    compared = 0
    for device, text_of in zip(_usable(), told, strict=True):
        if device.local_cpus is None or text_of in ("", "N/A"):
            continue
        affinity = cpuset.parse(text_of)
        assert device.local_cpus == affinity & node.read().cpus_online, (
            f"{device.address}: {cpuset.format(device.local_cpus)}, not {text_of}"
        )
        compared += 1
    if not compared:
        raise NotRun("neither sysfs nor nvidia-smi says which CPUs are next to a device")
    return {"devices": compared, "affinity": told}


@check("MIG")
def a_mig_slice_is_counted(machine: Machine) -> Figures:
    """A worker that is given a slice by its UUID sees one device, and so do we."""
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout
    slices = [line.split("UUID: ")[1].rstrip(")") for line in listed.splitlines() if "MIG" in line]
    return _compare(machine, slices[0])


def _compare(machine: Machine, value: str | None) -> dict[str, object]:
    """What PyTorch sees with this CUDA_VISIBLE_DEVICES, against what is foretold."""
    environ = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    foretold = visible(node.read(), {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", **environ})
    more = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": value}
    seen = machine.run(machine.script("seen"), **more).check().json()[0]
    assert len(seen["uuids"]) == len(foretold.devices), (
        f"CUDA_VISIBLE_DEVICES={value!r}: PyTorch sees {len(seen['uuids'])}, foretold "
        f"{len(foretold.devices)}"
    )
    devices = node.read().devices
    for uuid, number in zip(seen["uuids"], foretold.devices, strict=True):
        known = None if number is None else devices[number].uuid
        # PyTorch leaves out the GPU- that nvidia-smi writes.
        assert known is None or known.removeprefix("GPU-") == uuid.removeprefix("GPU-"), value
    return {"value": value, "seen": len(seen["uuids"])}


@check("NVIDIA")
def every_spelling_of_visible_devices_is_foretold(machine: Machine) -> Figures:
    """PyTorch sees, of each CUDA_VISIBLE_DEVICES, the devices that were foretold."""
    uuid = next((device.uuid for device in _usable() if device.uuid), None)
    last = len(machine.devices) - 1
    numbers = [None, "", "-1", "0", " 0", "0,-1", f"{last},0", "0,0", "0,99", "99", "abc", "0x0"]
    of_uuid = [] if uuid is None else [uuid, uuid[:12], uuid.upper(), f"{uuid},0", uuid[4:]]
    values = list(dict.fromkeys([*numbers, *of_uuid, "GPU-00000000"]))
    compared: list[object] = []
    wrong = []
    for value in values:
        try:
            compared.append(_compare(machine, value))
        except AssertionError as error:
            wrong.append(str(error))
    assert not wrong, "; ".join(wrong)
    return {"values": compared}


@check("gpu")
def nproc_gpu_starts_a_worker_next_to_each_device(machine: Machine) -> Figures:
    """As many workers as PyTorch counts devices, on CPUs next to them, where these are known."""
    here = node.read()
    seen = visible(here, {})
    workers = machine.launch("--nproc", "gpu", machine.script("seen")).check().json()
    ranks = sorted(worker["local_rank"] for worker in workers)
    assert ranks == list(range(len(machine.devices))), ranks
    compared = {}
    for worker in workers:
        number = seen.devices[worker["local_rank"]]
        near = None if number is None else here.devices[number].local_cpus
        if near is not None and near & here.cpus_allowed:
            mine = frozenset(worker["cpus"])
            assert mine <= near, f"{cpuset.format(mine)} is not within {cpuset.format(near)}"
            compared[worker["local_rank"]] = cpuset.format(mine)
    if not compared:
        raise NotRun("the firmware does not say which CPUs are next to a device")
    return {"cpus": compared}


@check("gpu")
def check_names_and_measures_the_device_of_a_rank(machine: Machine) -> Figures:
    """`python -m spawnlaunch.check --all` names the device, measures on it, and finds no fault."""
    ended = machine.launch("--nproc", "1", "-m", "spawnlaunch.check", "--all", "--json")
    assert ended.status in (0, 1), ended.err
    found = json.loads(ended.out)
    (one,) = found["ranks"]
    assert one["device"] is not None, one
    faults = [each for each in found["verdicts"] if each["status"] in ("warn", "fail")]
    assert not [each for each in faults if "device" in str(each)], faults
    assert not one["computes_on"].startswith("cpu"), one["computes_on"]
    rates = {"gflops": one["gflops"]}
    assert all(rate > 0 for rate in rates.values()), rates
    return rates
