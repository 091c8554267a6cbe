"""The bench on a device, and what `top` says of it."""

import json
import subprocess
from typing import Any

from tests.gpu.check import Figures, check
from tests.gpu.machine import Machine


def _bench(machine: Machine, workload: str, *flags: str) -> dict[str, Any]:
    file = machine.folder / f"{workload.replace(',', '-')}.jsonl"
    words = ("--arms", "unpinned,auto", "--rounds", "3", "--json", str(file))
    ended = machine.run("-m", "spawnlaunch.bench", "--workloads", workload, *words, *flags)
    assert ended.status in (0, 1), ended.err[-2000:]
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return {**lines[0]["bench"], "rows": lines[-1]["summary"]["comparisons"]}


def _rows(result: dict[str, Any]) -> Figures:
    return {"rows": result.get("rows"), "not run": result.get("not_run"), "nodes": result["nodes"]}


@check("gpu")
def the_bench_copies_to_and_from_the_device(machine: Machine) -> Figures:
    """Copies between host and device, and of a loader: each rate is one that PCIe can have."""
    return _rows(_bench(machine, "copies,loader-pinned", "--nproc", "gpu"))


@check("NCCL", "two gpus")
def the_bench_all_reduces_over_nccl(machine: Machine) -> Figures:
    """All-reduce, all-gather and reduce-scatter among the devices, up to a gibibyte."""
    return _rows(_bench(machine, "allreduce,allgather,reducescatter", "--nproc", "gpu"))


@check("nvidia-smi", "pynvml")
def top_agrees_with_nvidia_smi(machine: Machine) -> Figures:
    """Device memory of a rank that holds two GiB, as `top` and nvidia-smi say."""
    launcher = machine.start(
        *("-m", "spawnlaunch", "--prefix=never", "--nproc", "1", machine.script("hold"))
    )
    try:
        holder = int(launcher.stdout.readline())
        ended = machine.run("-m", "spawnlaunch.top", "--once", "--json").check()
        query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        text = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    finally:
        launcher.terminate()
        launcher.communicate()
    device = next(rank["device"] for rank in ended.json() if rank["pid"] == holder)
    assert device, "top tells no device of the rank"
    told = int(text.splitlines()[0]) * 2**20
    assert abs(device["memory"] - told) < 2**28, f"top {device['memory']}, nvidia-smi {told}"
    return {"top": device, "nvidia-smi": told}
