"""Reading a machine: what is there, what is missing, and what must not be taken for a device."""

import os
import shutil
from pathlib import Path

import pytest

from spawnlaunch import node as nodes
from spawnlaunch.base import cpuset
from spawnlaunch.binding.plan import plan
from spawnlaunch.node import cpus, devices, pci
from spawnlaunch.node.visible import visible
from tests import machines
from tests.machines.tree import AMD, ASPEED, INFINIBAND, INTEL, Gpu, Machine, build, node_of, write
from tests.support.effort import effort

DESK = Machine("desk", "invented", ("0,4", "1,5", "2,6", "3,7"), {0: "0-7"}, ("0-7",), ("0-7",))
TWO_NODES = DESK._replace(numa={0: "0-1,4-5", 1: "2-3,6-7"})


def lists(groups: tuple[frozenset[int], ...]) -> list[str]:
    return [cpuset.format(group) for group in groups]


def function(root: Path, address: str) -> Path:
    return root / "sys/bus/pci/devices" / address


def bus_of(root: Path) -> pci.Bus:
    return pci.Bus(str(root), pci.read_functions(str(root)), frozenset(), ())


def test_this_machine_agrees_with_the_system() -> None:
    node = nodes.read()
    assert node.cpus_allowed == frozenset(os.sched_getaffinity(0))
    assert (
        cpuset.format(node.cpus_online)
        == Path("/sys/devices/system/cpu/online").read_text().strip()
    )
    assert frozenset().union(*node.cores) == node.cpus_online


@pytest.mark.parametrize("listed", [0, 1, 4095])
def test_a_mask_is_kept_whatever_a_container_lists_as_online(
    listed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpus, "read_online", lambda _: frozenset({listed}))
    assert nodes.read().cpus_allowed == frozenset(os.sched_getaffinity(0))


def test_offline_cpus_are_in_no_group() -> None:
    node = node_of(TWO_NODES._replace(offline="0,5"))
    assert cpuset.format(node.cpus_online) == "1-4,6-7"
    assert lists(node.cores) == ["1", "2,6", "3,7", "4"]
    assert cpuset.format(node.numa[0].cpus) == "1,4"


def test_allowed_cpus_narrow_and_never_widen(tmp_path: Path) -> None:
    root = str(build(tmp_path, DESK))
    assert nodes.read(root, cpuset.parse("2-3,90")).cpus_allowed == {2, 3}
    nothing = nodes.read(root, cpuset.parse("90"))
    assert nothing.cpus_allowed == nothing.cpus_online
    assert "none of the CPUs asked for" in nothing.warnings[0]


CGROUP_1, CGROUP_2 = "cgroup /cg cgroup rw,cpuset 0 0", "cgroup2 /cg cgroup2 rw 0 0"


@pytest.mark.parametrize(
    ("mounts", "group", "files", "cpus"),
    [
        ("none /dev/cpuset cpuset rw 0 0", "3:cpuset:/job", {"dev/cpuset/job/cpus": "1-2"}, "1-2"),
        (CGROUP_1, "3:cpuset:/job", {"cg/job/cpuset.cpus": "1-2"}, "1-2"),
        (CGROUP_2, "0::/job", {"cg/job/cpuset.cpus.effective": "1-2"}, "1-2"),
        # The path on the host means the group that is mounted.
        (CGROUP_2, "0::/on/the/host", {"cg/cpuset.cpus.effective": "4-7"}, "4-7"),
        # A group without a cpuset of its own has that of the nearest group above it.
        (CGROUP_2, "0::/job/step/task", {"cg/job/step/cpuset.cpus.effective": "2-3",
                                         "cg/job/cpuset.cpus.effective": "0-3"}, "2-3"),
    ],
)  # fmt: skip
def test_a_snapshot_keeps_the_cpuset_of_its_process(
    mounts: str, group: str, files: dict[str, str], cpus: str
) -> None:
    where = {"proc/mounts": mounts, "proc/self/cgroup": group}
    node = node_of(DESK._replace(files=where | files))
    assert node.cpus_allowed == node.cpus_cgroup == cpuset.parse(cpus)


def test_a_snapshot_keeps_the_mask_and_the_memory_nodes_of_its_process() -> None:
    status = {"proc/self/status": "Cpus_allowed_list:\t0-3\nMems_allowed_list:\t1"}
    node = node_of(TWO_NODES._replace(files=status))
    assert cpuset.format(node.cpus_allowed) == "0-3"
    assert node.memory_nodes == {1}


def test_the_newer_names_of_groups_are_read_where_the_older_ones_are_gone(tmp_path: Path) -> None:
    root = build(tmp_path, DESK)
    (root / "sys/devices/system/cpu/cpu²").mkdir()  # no number, though Python calls it a digit
    for older, newer in (("thread_siblings", "core_cpus"), ("core_siblings", "package_cpus")):
        for file in root.rglob(f"{older}_list"):
            file.rename(file.with_name(f"{newer}_list"))
    node = nodes.read(str(root))
    assert lists(node.cores) == list(DESK.cores)
    assert lists(node.packages) == list(DESK.packages)


def test_nobody_who_does_not_look_at_adapters_pays_for_them(tmp_path: Path) -> None:
    root = str(build(tmp_path, TWO_NODES._replace(gpus=(Gpu(1, "2-3,6-7", vendor=INFINIBAND),))))
    full = effort(lambda: nodes.read(root))
    short = effort(lambda: nodes.read(root, everything=False))
    assert nodes.read(root, everything=False) == nodes.read(root)._replace(packages=(), nics=())
    assert short.opened < full.opened


def test_missing_caches_are_named_and_absent_l3_is_not() -> None:
    machine = DESK._replace(l3=())
    assert "without regard to L3" in node_of(machine).warnings[0]
    l2 = {"sys/devices/system/cpu/cpu0/cache/index2/level": "2"}
    assert node_of(machine._replace(files=l2)).warnings == ()


@pytest.mark.parametrize(
    ("without", "cpus"), [("", "2"), ("local_cpulist", "3,6"), ("local_cpu*", "2-3,6-7")]
)
def test_local_cpulist_comes_before_local_cpus_before_numa_node(without: str, cpus: str) -> None:
    (device,) = node_of(
        TWO_NODES._replace(
            gpus=(Gpu(1, "2"),),
            files={"sys/bus/pci/devices/0000:10:00.0/local_cpus": "00000048"},
            without=(f"sys/bus/pci/devices/*/{without}",) if without else (),
        )
    ).devices
    assert device.local_cpus == cpuset.parse(cpus)


def test_an_unknown_numa_node_is_unknown_and_not_node_0() -> None:
    node = node_of(TWO_NODES._replace(gpus=(Gpu(-1, "0-7"),)))
    assert node.devices[0].numa is None
    assert node.devices[0].local_cpus is None
    assert "0000:10:00.0" in node.warnings[0]
    own = plan(node, visible(node, {}), 1).bindings[0]
    assert own.locality == "unknown"


def test_with_one_numa_node_there_is_nothing_to_be_unknown() -> None:
    node = node_of(DESK._replace(gpus=(Gpu(-1, "0-7"),)))
    assert node.devices[0].numa is None
    assert node.devices[0].local_cpus == node.cpus_online
    assert node.warnings == ()


def test_a_missing_numa_node_file_is_made_up_for_by_the_local_cpus() -> None:
    gpus = (Gpu(1, "2-3,6-7"),)
    machine = TWO_NODES._replace(gpus=gpus, without=("sys/bus/pci/devices/*/numa_node",))
    assert node_of(machine).devices[0].numa == 1


def test_display_adapters_of_others_and_of_the_processor_are_no_devices() -> None:
    gpus = (
        Gpu(0, "0-7", "0000:00:02.0", INTEL),
        Gpu(0, "0-7", "0000:03:00.0", ASPEED),
        Gpu(0, "0-7", "0000:04:00.0", INFINIBAND),
        Gpu(0, "0-7", "0000:05:00.0", INTEL),
    )
    node = node_of(DESK._replace(gpus=gpus))
    assert [device.address for device in node.devices] == ["0000:05:00.0"]
    assert [nic.address for nic in node.nics] == ["0000:04:00.0"]


def test_addresses_are_ordered_as_numbers() -> None:
    gpus = (Gpu(0, "0-7", "10000:01:00.0"), Gpu(0, "0-7", "9000:01:00.0"))
    node = node_of(DESK._replace(gpus=gpus))
    assert [d.address for d in node.devices] == ["9000:01:00.0", "10000:01:00.0"]


def test_nvidia_devices_have_their_uuid_and_minor() -> None:
    node = node_of(machines.HGX_H100)
    assert node.devices[3].uuid == "GPU-00000003-0000-0000-0000-000000000000"
    assert [device.minor for device in node.devices] == list(range(8))
    assert {device.usable for device in node.devices} == {None}  # of a snapshot, nobody knows


@pytest.mark.parametrize(
    ("files", "hidden", "usable"),
    [
        ("0 1 2 3", "", [True, True, True, True]),
        ("1 3", "", [False, True, False, True]),  # CDI: /proc shows all, /dev its own
        ("0", "0 2 3", [False, True, False, False]),  # NVIDIA's tools hide the rest in both
        ("", "", [None, None, None, None]),  # made when CUDA first wants them
        ("0 1", "0 1 2 3", [None, None, None, None]),
        ("9", "", [False, False, False, False]),
    ],
)
def test_a_container_may_use_the_devices_that_it_has_files_of(
    tmp_path: Path, files: str, hidden: str, usable: list[bool | None]
) -> None:
    machine = machines.HGX_H100._replace(gpus=machines.HGX_H100.gpus[:4])
    root = build(tmp_path, machine)
    for minor in files.split():
        write(root / f"dev/nvidia{minor}", "")
    write(root / "dev/nvidiactl", "")
    for i in hidden.split():
        shutil.rmtree(root / f"proc/driver/nvidia/gpus/0000:1{i}:00.0")
    if files == "0":  # the one that is shown is the first of the container
        write(root / "proc/driver/nvidia/gpus/0000:11:00.0/information", "Device Minor: \t 0")
    found = devices.read_nvidia(bus_of(root), str(root / "dev"))
    assert [device.usable for device in found] == usable


def test_kfd_gives_amd_devices_their_order_and_pci_their_number(tmp_path: Path) -> None:
    root = build(tmp_path, machines.LUMI)
    kfd = root / "sys/class/kfd/kfd/topology/nodes"
    (kfd / "1").rename(kfd / "99")
    node = nodes.read(str(root))
    assert [device.ordinal for device in node.devices] == [7, 0, 1, 2, 3, 4, 5, 6]
    assert [device.number for device in node.devices] == list(range(8))
    assert node.devices[0].uuid == "GPU-000000000000abc0"


def test_an_amd_device_that_kfd_does_not_show_cannot_be_used(tmp_path: Path) -> None:
    root = build(tmp_path, machines.LUMI)
    shutil.rmtree(root / "sys/class/kfd/kfd/topology/nodes/3")
    node = nodes.read(str(root))
    assert [d.address for d in node.devices if d.usable is False] == ["0000:c9:00.0"]
    assert [d.ordinal for d in node.devices] == [0, 1, None, 2, 3, 4, 5, 6]
    assert "0000:c9:00.0" in node.warnings[0]
    assert visible(node, {}).devices == (0, 1, 3, 4, 5, 6, 7)


def test_without_kfd_amd_devices_are_taken_from_the_pci_bus(tmp_path: Path) -> None:
    root = build(tmp_path, machines.LUMI)
    shutil.rmtree(root / "sys/class/kfd")
    assert len(nodes.read(str(root)).devices) == 8
    write(function(root, "0000:c1:00.0") / "class", "0x030000")
    assert len(nodes.read(str(root)).devices) == 7


@pytest.mark.parametrize(("vendor", "kind"), [(AMD, "partition"), (INTEL, "tile")])
def test_parts_of_a_device_share_its_address(vendor: str, kind: str) -> None:
    found = node_of(DESK._replace(gpus=(Gpu(0, "0-7", vendor=vendor, parts=3),))).devices
    assert [(device.kind, device.partition) for device in found] == [(kind, i) for i in range(3)]
    assert len({device.address for device in found}) == 1


def test_the_memory_of_a_gpu_is_told_from_other_memory() -> None:
    gpus = (Gpu(0, "0-7", memory_node=2),)
    node = node_of(DESK._replace(numa={0: "0-7", 1: "", 2: ""}, gpus=gpus, memory_kib={1: 0}))
    assert [each.kind for each in node.numa] == ["cpu", "empty", "gpu"]
    assert plan(node, visible(node, {}), 1).bindings[0].memory_nodes == {0}


def test_a_machine_without_sys_is_its_cpus_and_a_warning(tmp_path: Path) -> None:
    node = nodes.read(str(tmp_path), cpuset.parse("0-2"))
    assert node.cpus_allowed == {0, 1, 2}
    assert len(node.cores) == 3
    assert len(node.warnings) == 1
    assert plan(node, visible(node, {}), 2).bindings[0].cpus
