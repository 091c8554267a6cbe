"""Ranks that meet over NCCL, also from a preloaded image."""

import os
import subprocess
import time
from pathlib import Path

from tests.gpu.check import Figures, NotRun, check
from tests.gpu.machine import Machine


@check("NCCL")
def nccl_adds_up_with_every_device(machine: Machine) -> Figures:
    """A rank per device adds up a tensor over NCCL."""
    ranks = len(machine.devices)
    words = ("--nproc", str(ranks), machine.script("reduce"), "nccl", "own")
    lines = machine.launch(*words).check().json()
    assert len(lines) == ranks, lines
    return {"ranks": ranks}


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
        *("-m", "spawnlaunch", "--prefix=never", "--nproc", "1", "--preload", "torch", *script)
    )
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


@check("NCCL")
def a_rank_that_is_killed_in_nccl_ends_all(machine: Machine) -> Figures:
    """A rank dies between all-reduces of NCCL: the launch ends with its status, and in time."""
    launcher = machine.start(
        *("-m", "spawnlaunch", "--prefix=never", "--nproc", str(len(machine.devices))),
        *(machine.script("reduce"), "nccl", "own", "1000000"),
    )
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
