"""Workers that end by a fault of the device: the status, the report, and what stays there."""

import subprocess

from tests.gpu.check import Figures, check
from tests.gpu.machine import Machine


def _used_bytes(machine: Machine) -> int:
    """Memory of the first device that is in use, of all processes."""
    code = "import torch; free, total = torch.cuda.mem_get_info(0); print(total - free)"
    return int(machine.run("-c", code).check().out)


def _fail(machine: Machine, how: str, said: str) -> Figures:
    before = _used_bytes(machine)
    two = ("--nproc", "2", "--oversubscribe", machine.script("fail"))
    ended = machine.launch(*two, how, CUDA_VISIBLE_DEVICES="0")
    assert ended.status not in (0, 2), f"status {ended.status}: {ended.err[-1500:]}"
    assert said in ended.err, f"no {said!r} in {ended.err[-3000:]}"
    assert "rank 0" in ended.err, f"the report does not name rank 0: {ended.err[-1500:]}"
    kept = _used_bytes(machine) - before
    assert kept < 1 << 28, f"{kept} bytes are still in use"  # one worker held 1 GiB
    left = subprocess.run(["pgrep", "-f", machine.script("fail")], capture_output=True, text=True)
    assert not left.stdout, f"left behind: {left.stdout.split()}"
    return {"status": ended.status, "kept_bytes": kept}


@check("gpu")
def a_fault_in_a_kernel_is_reported_and_leaves_nothing(machine: Machine) -> Figures:
    """An assertion in a kernel: its text in the report, the other rank ended, memory free."""
    return _fail(machine, "kernel", "device-side assert")


@check("gpu")
def no_memory_on_the_device_is_reported_and_leaves_nothing(machine: Machine) -> Figures:
    """Out of memory on the device: the same."""
    return _fail(machine, "memory", "OutOfMemoryError")
