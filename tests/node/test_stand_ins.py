"""The device files of a container say which devices it may use, however the driver numbers them."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spawnlaunch import node as nodes
from spawnlaunch.node import devices, pci
from tests.machines.tree import AMD, IN_MEMORY, INTEL, NVIDIA, Gpu, Machine, build, write

COUNT = 4
FILES = {NVIDIA: "nvidia", AMD: "dri/renderD", INTEL: "dri/renderD"}


@pytest.mark.parametrize("vendor", FILES)
@settings(max_examples=30)
@given(st.permutations(range(128, 128 + COUNT)), st.frozensets(st.integers(0, COUNT - 1)))
def test_the_devices_that_have_a_file_are_those_that_can_be_used(
    vendor: str, minors: list[int], shown: frozenset[int]
) -> None:
    gpus = tuple(Gpu(i // 2, f"{i // 2}", None, vendor, minor=minors[i]) for i in range(COUNT))
    machine = Machine("container", "invented", ("0", "1"), {0: "0", 1: "1"}, gpus=gpus)
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        root = build(Path(folder), machine)
        whole = nodes.read(str(root))
        write(root / "dev/null", "")
        for number in shown:
            write(root / f"dev/{FILES[vendor]}{minors[number]}", "")
        bus = pci.Bus(str(root), pci.read_functions(str(root)), whole.cpus_online, whole.numa)
        found = devices.read(bus, str(root / "dev"), [])
    assert [(d.vendor, d.address, d.numa, d.local_cpus) for d in found] == [
        (d.vendor, d.address, d.numa, d.local_cpus) for d in whole.devices
    ]
    not_made_yet = vendor == NVIDIA and not shown  # CUDA makes them when it first wants them
    usable = [None if not_made_yet else number in shown for number in range(COUNT)]
    assert [device.usable for device in found] == usable
    ordinals = iter(range(COUNT))
    assert [d.ordinal for d in found] == [
        next(ordinals) if can_be_seen is not False else None for can_be_seen in usable
    ]
