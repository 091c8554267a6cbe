"""--nproc gpu, auto, xpu, hpu and npu: whose devices are counted, and why there are none."""

from pathlib import Path
from typing import Any

import pytest

from spawnlaunch.base.errors import UsageError
from spawnlaunch.node.devices import BY_VENDOR
from spawnlaunch.node.visible import visible
from tests.machines.small import TWO_NODES, small
from tests.machines.tree import AMD, INTEL, NVIDIA, Gpu, Machine, node_of
from tests.support.explained import explain
from tests.support.launching import REPORTER, launch

CUDA, HIP, ROCR = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"
ASCEND = "ASCEND_RT_VISIBLE_DEVICES"


def pair(vendor: str) -> tuple[Gpu, Gpu]:
    """A device on each of two NUMA nodes."""
    return Gpu(0, "0-1", vendor=vendor), Gpu(1, "2-3", vendor=vendor)


def board(vendor: str, bus: int) -> dict[str, str]:
    """Two accelerators, which are no GPUs, in this PCI domain."""
    kind, found = BY_VENDOR[vendor], dict[str, str]()
    for node in range(2):
        where = f"sys/bus/pci/devices/{bus:04x}:01:0{node}.0"
        found |= {
            f"{where}/class": f"0x{kind.pci_class:04x}00",
            f"{where}/vendor": f"0x{kind.pci_vendor:04x}",
            f"{where}/numa_node": str(node),
            f"{where}/local_cpulist": ("0-1", "2-3")[node],
        }
    return found


ALL = small(
    4, TWO_NODES, (*pair(NVIDIA), *pair(AMD), *pair(INTEL)),
    files={**board("huawei", 1), **board("habana", 2)},
)  # fmt: skip
OF = {
    "nvidia": small(4, TWO_NODES, pair(NVIDIA)),
    "amd": small(4, TWO_NODES, pair(AMD)),
    "intel": small(4, TWO_NODES, pair(INTEL)),
    "huawei": small(4, TWO_NODES, files=board("huawei", 1)),
    "habana": small(4, TWO_NODES, files=board("habana", 1)),
}
WORDS = {"gpu": "nvidia", "auto": "nvidia", "xpu": "intel", "npu": "huawei", "hpu": "habana"}


def vendors(told: dict[str, Any]) -> list[str]:
    """Of the devices of the workers."""
    devices = told["node"]["devices"]
    return [devices[worker["device"]["index"]]["vendor"] for worker in told["workers"]]


@pytest.mark.parametrize("word", WORDS)
def test_the_word_names_the_vendor_whose_devices_the_ranks_have(word: str) -> None:
    told = explain(ALL, f"--nproc {word}")
    assert vendors(told) == [WORDS[word]] * 2
    assert [worker["cpus"] for worker in told["workers"]] == ["0-1", "2-3"]
    several = [line for line in told["warnings"] if "are taken" in line]
    assert len(several) == (word in ("gpu", "auto"))  # of what was asked for, not a word


def test_the_vendors_own_variables_decide() -> None:
    told = explain(ALL, "--nproc xpu", {"ZE_AFFINITY_MASK": "1", CUDA: "", HIP: "0"})
    assert [worker["cpus"] for worker in told["workers"]] == ["2-3"]
    told = explain(ALL, "--nproc npu", {ASCEND: "1,0"})
    assert [worker["cpus"] for worker in told["workers"]] == ["2-3", "0-1"]
    assert len(explain(ALL, "--nproc hpu", {"HABANA_VISIBLE_MODULES": "1,0"})["workers"]) == 2


@pytest.mark.parametrize("word", WORDS)
def test_who_asks_in_a_worker_sees_the_same_devices(word: str) -> None:
    """As check, top and the record do."""
    told = explain(ALL, f"--nproc {word} --virtual-local-rank")
    for worker in told["workers"]:
        (number,) = visible(node_of(ALL), worker["env"]).devices
        assert number in (worker["device"]["index"], None)


def test_a_launch_within_a_worker_begins_anew() -> None:
    outer = explain(ALL, "--nproc xpu")["workers"][0]["env"]
    assert vendors(explain(ALL, "--nproc gpu --standalone", outer)) == ["nvidia"] * 2


@pytest.mark.parametrize(
    ("machine", "word", "said"),
    [
        (OF["nvidia"], "xpu", "no XPU is visible here (those that are visible are of nvidia)"),
        (OF["intel"], "npu", "no NPU is visible here (those that are visible are of intel)"),
        (small(4), "hpu", "no HPU is visible here; use --nproc N, or use --nproc cpu"),
        (small(4), "gpu", "no GPU is visible here; use --nproc N, or use --nproc cpu"),
    ],
)
def test_a_vendor_that_is_not_here_is_refused(machine: Machine, word: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        explain(machine, f"--nproc {word}")
    assert said in str(refused.value)


def test_a_machine_that_shows_no_cpu_does_not_count_them(tmp_path: Path) -> None:
    for word in ("cpu", "auto"):
        words = ("--explain", "--nproc", word, "--sysfs-root", tmp_path, REPORTER)
        done = launch(*words)
        assert done.returncode == 2
        assert f"--nproc {word}: no CPU is visible here; use --nproc N" in done.stderr
    assert launch("--explain", "--nproc", 1, "--sysfs-root", tmp_path, REPORTER).returncode == 0


NOTHING = [
    ("nvidia", {CUDA: "2,3"}, "CUDA_VISIBLE_DEVICES=2,3: '2' names no device", CUDA),
    ("nvidia", {CUDA: "1,1"}, "CUDA_VISIBLE_DEVICES=1,1 names a device twice", CUDA),
    ("nvidia", {CUDA: "-1,0"}, "CUDA_VISIBLE_DEVICES=-1,0 hides all 2 devices of nvidia", CUDA),
    ("amd", {ROCR: "1", HIP: "1"}, "leaves 1, of which HIP_VISIBLE_DEVICES=1 selects none", HIP),
    ("amd", {ROCR: "", HIP: "5"}, "ROCR_VISIBLE_DEVICES= hides all 2 ", f"{ROCR} {HIP}"),
    ("intel", {"ZE_AFFINITY_MASK": "2"}, "ZE_AFFINITY_MASK=2: no device 2", "ZE_AFFINITY_MASK"),
    ("huawei", {ASCEND: ""}, f"{ASCEND}= hides all 2 devices of huawei", ASCEND),
    ("habana", {"HABANA_VISIBLE_MODULES": "x"}, "'x' names no device", "HABANA_VISIBLE_MODULES"),
]
COUNTS = ("devices to choose from: ", "hides all 2 devices", "leaves 1, ")


@pytest.mark.parametrize(("vendor", "environ", "said", "unset"), NOTHING)
@pytest.mark.parametrize("is_among_others", [False, True])
def test_a_list_that_selects_nothing_is_named_and_without_it_there_are_devices(
    vendor: str, environ: dict[str, str], said: str, unset: str, is_among_others: bool
) -> None:
    word = next((word for word, maker in WORDS.items() if maker == vendor), "gpu")
    machine = ALL if is_among_others and vendor != "amd" else OF[vendor]
    with pytest.raises(UsageError) as refused:
        explain(machine, f"--nproc {word}", environ)
    error = str(refused.value)
    assert said in error
    assert any(count in error for count in COUNTS)
    assert error.endswith(f"; unset {unset}, or use --nproc cpu")
    mended = {name: value for name, value in environ.items() if name not in unset.split()}
    assert explain(machine, f"--nproc {word}", mended)["workers"][0]["device"]


def test_auto_counts_cpus_then_and_says_so_once() -> None:
    told = explain(OF["nvidia"], "--nproc auto", {CUDA: ""})
    assert len(told["workers"]) == 4
    (line,) = (line for line in told["warnings"] if "hides all 2 devices" in line)
    assert line.startswith("--nproc auto counts CPUs, for no device is visible: ")


def test_a_number_is_told_the_reason_and_the_cure() -> None:
    told = explain(OF["amd"], "--nproc 1", {ROCR: "1", HIP: "1"})
    (line,) = (line for line in told["warnings"] if HIP in line)
    assert line.endswith(f", so no device is visible; unset {HIP}")


WSL = small(2, files={"dev/dxg": ""})
TEGRA = small(2, files={"proc/device-tree/compatible": "nvidia,tegra234\0"})


@pytest.mark.parametrize(("machine", "said"), [(WSL, "this is WSL"), (TEGRA, "a Tegra board")])
@pytest.mark.parametrize("word", ["gpu", "auto"])
def test_devices_that_nobody_can_count_need_a_number(
    machine: Machine, said: str, word: str
) -> None:
    with pytest.raises(UsageError) as refused:
        explain(machine, f"--nproc {word}")
    assert said in str(refused.value)
    assert str(refused.value).endswith("; use --nproc N, or use --nproc cpu")
    assert len(explain(machine, "--nproc 1")["workers"]) == 1
    assert len(explain(machine, "--nproc cpu")["workers"]) == 2


def test_a_list_counts_what_nothing_else_counts() -> None:
    assert len(explain(WSL, "--nproc gpu", {CUDA: "0"})["workers"]) == 1
    told = explain(WSL, "--nproc auto", {CUDA: ""})
    assert len(told["workers"]) == 2
    assert any("counts CPUs" in line for line in told["warnings"])


def test_a_machine_without_devices_is_told_nothing() -> None:
    for environ in ({}, {CUDA: ""}, {CUDA: "-1"}):
        told = explain(small(2), "--nproc auto", environ)
        assert len(told["workers"]) == 2
        assert not [line for line in told["warnings"] if "visible" in line.lower()]


@pytest.mark.parametrize(
    ("vendor", "file"), [("nvidia", "/dev/nvidia<N>"), ("amd", "/dev/dri/renderD<N>"),
                         ("intel", "/dev/dri/renderD<N>"), ("huawei", "/dev/davinci<N>")],
)  # fmt: skip
def test_devices_that_cannot_be_opened_are_named(vendor: str, file: str) -> None:
    node = node_of(OF[vendor])
    closed = tuple(each._replace(usable=False, ordinal=None) for each in node.devices)
    seen = visible(node._replace(devices=closed), {})
    assert seen.why == f"no {file} can be opened for all 2 devices of {vendor}"
    assert seen.warnings == (seen.why,)


def test_another_vendor_is_taken_with_a_line_where_the_first_cannot_be_opened() -> None:
    node = node_of(small(4, TWO_NODES, (*pair(NVIDIA), *pair(AMD))))
    closed = tuple(
        each._replace(usable=False, ordinal=None) if each.vendor == NVIDIA else each
        for each in node.devices
    )
    seen = visible(node._replace(devices=closed), {})
    assert (seen.vendor, len(seen.devices)) == (AMD, 2)
    assert "/dev/nvidia<N>" in seen.warnings[0]
