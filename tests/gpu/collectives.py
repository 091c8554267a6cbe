"""Ranks that meet: over NCCL, over gloo with what is on a device, from a preloaded image."""

import os
import subprocess
import time
from pathlib import Path

from tests.gpu.check import Figures, NotRun, check
from tests.gpu.machine import Machine


def _reduce(machine: Machine, backend: str, ranks: int, *flags: str, device: str) -> Figures:
    words = ("--nproc", str(ranks), *flags, machine.script("reduce"), backend, device)
    lines = machine.launch(*words, BEGAN=str(time.time())).check().json()
    assert len(lines) == ranks, lines
    return {name: max(line[name] for line in lines) for name in ("first_s", "pss_bytes")}


@check("torch")
def gloo_adds_up_on_the_cpu(machine: Machine) -> Figures:
    """Two ranks add up a tensor on the CPU over gloo."""
    return _reduce(machine, "gloo", 2, "--oversubscribe", device="cpu")


@check("NCCL")
def nccl_adds_up_with_one_rank(machine: Machine) -> Figures:
    """One rank makes a communicator of NCCL and adds up a tensor on its device."""
    return _reduce(machine, "nccl", 1, device="own")


@check("NCCL", "two gpus")
def nccl_adds_up_with_every_device(machine: Machine) -> Figures:
    """A rank per device adds up a tensor over NCCL."""
    return _reduce(machine, "nccl", len(machine.devices), device="own")


@check("gpu")
def two_ranks_share_a_device(machine: Machine) -> Figures:
    """Two ranks on one device: over NCCL where it allows that, else over gloo."""
    words = ("--nproc", "2", "--oversubscribe", machine.script("reduce"))
    over_nccl = machine.launch(*words, "nccl", "cuda:0", NCCL_DEBUG="WARN")
    if over_nccl.status == 0:
        return {"over": "nccl"}
    refusal = [line for line in over_nccl.err.splitlines() if "uplicate GPU" in line]
    assert refusal, f"NCCL failed, and not since two ranks share a device: {over_nccl.err[-1500:]}"
    machine.launch(*words, "gloo", "cuda:0").check()
    return {"over": "gloo", "nccl": refusal[0].strip()}


def _image(launcher: int) -> int:
    """The process that preloads: the launcher's guard, which forks the workers."""
    for _ in range(600):
        children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
        if children:
            return int(children[0])
        time.sleep(0.1)
    raise AssertionError("the launcher has no child")


@check("torch")
def a_preloaded_image_opens_no_device(machine: Machine) -> Figures:
    """`--preload torch` opens no driver, and its workers can use the device nevertheless."""
    backend, device = ("nccl", "own") if "NCCL" in machine.has else ("gloo", "cpu")
    script = (machine.script("reduce"), backend, device, "200")
    launcher = machine.start(
        *("-m", "spawnlaunch", "--no-prefix", "--nproc", "1", "--preload", "torch", *script)
    )
    assert launcher.stdout is not None
    assert launcher.stdout.readline() == "round\n"  # the worker has met, so the image is whole
    image = _image(launcher.pid)
    targets = []
    for fd in os.listdir(f"/proc/{image}/fd"):
        try:
            targets.append(os.readlink(f"/proc/{image}/fd/{fd}"))
        except OSError:
            continue
    opened = [each for each in targets if each.startswith(("/dev/nvidia", "/dev/kfd", "/dev/dri"))]
    contexts = ""
    if "nvidia-smi" in machine.has:
        query = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
        contexts = subprocess.run(query, capture_output=True, text=True).stdout
    _, err = launcher.communicate(timeout=150)
    assert launcher.returncode == 0, err
    assert not opened, opened
    assert str(image) not in contexts.split(), f"{image} has a context: {contexts}"
    return {"image": image, "contexts": contexts.split()}


@check("torch")
def the_first_all_reduce_with_and_without_preload(machine: Machine) -> Figures:
    """How long after the launch a worker has added up, and its memory, fresh and preloaded."""
    backend, device = ("nccl", "own") if "NCCL" in machine.has else ("gloo", "cpu")
    ways = {"fresh": (), "preloaded": ("--preload", "torch")}
    taken: dict[str, list[Figures]] = {name: [] for name in ways}
    for _ in range(3):
        for name, flags in ways.items():
            taken[name].append(_reduce(machine, backend, 1, *flags, device=device))
    return {
        f"{name}, {figure}": sorted(one[figure] for one in runs)[1]  # the median of three
        for name, runs in taken.items()
        for figure in ("first_s", "pss_bytes")
    }


@check("NCCL", "two gpus")
def a_rank_that_is_killed_in_nccl_ends_all(machine: Machine) -> Figures:
    """A rank dies between all-reduces of NCCL: the launch ends with its status, and in time."""
    launcher = machine.start(
        *("-m", "spawnlaunch", "--no-prefix", "--nproc", str(len(machine.devices))),
        *(machine.script("reduce"), "nccl", "own", "1000000"),
    )
    return _kill_one(machine, launcher)


@check("NCCL")
def a_lone_rank_that_is_killed_in_nccl_leaves_nothing(machine: Machine) -> Figures:
    """The only rank dies between all-reduces of NCCL: status 137, and its memory is free again."""
    launcher = machine.start(
        *("-m", "spawnlaunch", "--no-prefix", "--nproc", "1"),
        *(machine.script("reduce"), "nccl", "own", "1000000"),
    )
    return _kill_one(machine, launcher)


def _kill_one(machine: Machine, launcher: "subprocess.Popen[str]") -> Figures:
    assert launcher.stdout is not None
    assert launcher.stdout.readline() == "round\n"
    listed = subprocess.run(
        ["pgrep", "-f", machine.script("reduce")], capture_output=True, text=True
    )
    workers = [int(pid) for pid in listed.stdout.split() if int(pid) != launcher.pid]
    victim = next((pid for pid in workers if _image(launcher.pid) != pid), None)
    if victim is None:
        raise NotRun("the worker could not be found")
    os.kill(victim, 9)
    began = time.monotonic()
    _, err = launcher.communicate(timeout=150)
    assert launcher.returncode == 137, (launcher.returncode, err[-1500:])
    return {"end_s": round(time.monotonic() - began, 2)}
