"""The table of torchrun's --numa-binding: its rules are torch's own, and our default is as good."""

import json
import os
import sys
from pathlib import Path

import pytest

from docs import numa_binding, numa_table
from docs.numa_table import Situation
from spawnlaunch.base import cpuset
from spawnlaunch.node import Node
from tests import machines
from tests.machines import small
from tests.machines.tree import Machine, build, write
from tests.support.launching import clean_environ, run
from tests.support.required import require_programs, require_root


def test_the_default_is_as_good_as_torchrun_on_each_machine():
    for machine in numa_table.every_machine():
        assert numa_table.worse(numa_table.counted(machine)) == [], machine.name


# torch's own functions, where the files of a machine are the kernel's

PROGRAM = """
import json, os, sys
from types import SimpleNamespace
import torch
from torch.numa import binding

cases, answers = json.load(open(sys.argv[1])), []
for case in cases:
    gpus = [SimpleNamespace(**gpu) for gpu in case["gpus"]]
    torch.cuda.device_count = lambda: len(gpus)
    torch.cuda.get_device_properties = lambda index: gpus[index]
    os.sched_getaffinity = lambda pid: set(case["allowed"])
    options = binding.NumaOptions(binding.AffinityMode(case["mode"]))
    try:
        answers.append([
            binding._maybe_wrap_command_args_with_numa_binding(
                ("x",), gpu_index=rank, numa_options=options)[1].partition("=")[2]
            for rank in range(case["ranks"])
        ])
    except Exception:
        answers.append(None)
json.dump(answers, open(sys.argv[2], "w"))
"""
MOUNTS = """
mount --bind "$0/sys/devices/system" /sys/devices/system
mount --bind "$0/sys/bus/pci" /sys/bus/pci
exec "$@"
"""


def case_of(mode: str, situation: Situation) -> dict[str, object]:
    """A case for torch, which knows a GPU by the parts of its address."""
    _, node, shown, ranks = situation
    addresses = [node.devices[number].address for number in shown.devices if number is not None]
    gpus = []
    for address in addresses:
        domain, bus, rest = address.split(":")
        numbers = (int(domain, 16), int(bus, 16), int(rest.partition(".")[0], 16))
        names = ("pci_domain_id", "pci_bus_id", "pci_device_id")
        gpus.append(dict(zip(names, numbers, strict=True)))
    return {"mode": mode, "ranks": ranks, "gpus": gpus, "allowed": sorted(node.cpus_allowed)}


def show_more(root: Path, node: Node) -> None:
    """Write what torch reads beside the files of the tree."""
    system = root / "sys/devices/system"
    write(system / "node/possible", cpuset.format(each.id for each in node.numa))
    for cpu in node.cpus_online:
        place = next((i for i, cpus in enumerate(node.packages) if cpu in cpus), 0)
        write(system / f"cpu/cpu{cpu}/topology/physical_package_id", place)
        write(system / f"cpu/cpu{cpu}/cache/index0/type", "Data")
        write(system / f"cpu/cpu{cpu}/cache/index0/level", 1)
        core = next(core for core in node.cores if cpu in core)
        write(system / f"cpu/cpu{cpu}/cache/index0/shared_cpu_list", cpuset.format(core))
        if any(cpu in group for group in node.l3):
            write(system / f"cpu/cpu{cpu}/cache/index3/type", "Unified")


@pytest.mark.full
@pytest.mark.parametrize(
    "machine", [machines.LUMI, machines.CLOUD_VM, machines.GH200, small.MIXED, small.PAIRS]
)
def test_the_rules_are_those_of_torch(machine: Machine, tmp_path: Path):
    require_programs("unshare", package="util-linux")
    require_root()
    situations = numa_table.situations(machine)
    root = build(tmp_path / "root", machine)
    show_more(root, situations[0].node)
    (tmp_path / "numactl").write_text("#!/bin/sh\n")  # torch wants it to be there
    (tmp_path / "numactl").chmod(0o755)
    cases = [(mode, each) for each in situations for mode in numa_binding.MODES]
    (tmp_path / "cases").write_text(json.dumps([case_of(*case) for case in cases]))
    words = (sys.executable, "-c", PROGRAM, tmp_path / "cases", tmp_path / "answers")
    environ = clean_environ(PATH=f"{tmp_path}:{os.environ['PATH']}")
    run("unshare", "--mount", "sh", "-ec", MOUNTS, root, *words, environ=environ, check=True)
    answers = json.loads((tmp_path / "answers").read_text())
    places = []
    for mode, situation in cases:
        ranks = numa_table.placed(mode, situation)
        places.append(ranks and [cpuset.format(rank.cpus) for rank in ranks])
    assert places == answers
    assert None in answers
    assert any(answers)
