"""The bundled loop on a device: precisions, exact resumes, where the time goes."""

import json
from pathlib import Path
from typing import Any

from tests.gpu.check import Figures, check
from tests.gpu.machine import Ended, Machine

SMALL = ("--layers", "2", "--width", "64", "--context", "64", "--eval-every", "0")


def _train(machine: Machine, out: str, *flags: str, ranks: int = 1, **more: str) -> Ended:
    words = ("--nproc", str(ranks), "--", "--out", out, *flags)
    return machine.launch(*words, **more).check()


def _lines(machine: Machine, out: str) -> list[dict[str, Any]]:
    text = (machine.folder / out / "metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def _losses(machine: Machine, out: str) -> list[float]:
    return [line["loss"] for line in _lines(machine, out) if "loss" in line]


def _falls(machine: Machine, out: str, *flags: str, ranks: int = 1) -> Figures:
    steps = ("--steps", "60", "--log-every", "20", "--save-every", "0")
    _train(machine, out, *SMALL, *steps, *flags, ranks=ranks)
    losses = _losses(machine, out)
    assert losses[-1] < losses[0] - 1, f"the loss does not fall: {losses}"
    last = [line for line in _lines(machine, out) if "loss" in line][-1]
    return {"losses": losses, "samples_per_second": last["samples_per_second"]}


@check("torch", "numpy", "psutil")
def the_loop_learns_on_the_cpu(machine: Machine) -> Figures:
    """The loop in float32 on the CPU."""
    return _falls(machine, "cpu", "--device", "cpu")


@check("gpu")
def the_loop_learns_in_fp32(machine: Machine) -> Figures:
    """The loop in float32 on the device, which says that TF32 is faster."""
    figures = _falls(machine, "fp32", "--device", "cuda")
    ended = _train(machine, "said", *SMALL, "--device", "cuda", "--steps", "1")
    assert "without TF32; --tf32 or --precision bf16 is faster" in ended.out, ended.out
    return figures


def _learns(name: str, *flags: str) -> None:
    """Make a check of it that the loop learns with these flags."""

    def show(machine: Machine) -> Figures:
        return _falls(machine, name, "--device", "cuda", *flags)

    show.__name__ = f"the_loop_learns_{name}"
    check("gpu")(show)


_learns("in_tf32", "--tf32")
_learns("in_bf16", "--precision", "bf16")
_learns("in_fp16", "--precision", "fp16")
_learns("compiled", "--precision", "bf16", "--compile")
_learns("with_loader_processes", "--loader-workers", "2")


@check("gpu")
def a_resume_on_the_device_is_exact(machine: Machine) -> Figures:
    """Half a run and its resume end at the same losses, bit for bit, as the run in one go."""
    flags = (*SMALL, "--device", "cuda", "--log-every", "1", "--save-every", "10")
    exact = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    _train(machine, "whole", *flags, "--steps", "20", **exact)
    _train(machine, "halves", *flags, "--steps", "20", "--max-time", "1h", **exact)
    # What an interruption leaves: the checkpoint of step 10 and the lines up to it.
    resumed = str(machine.folder / "halves" / "step-00000010")
    _train(machine, "again", *flags, "--steps", "20", "--resume", resumed, **exact)
    whole, again = _losses(machine, "whole"), _losses(machine, "again")
    assert again[-10:] == whole[-10:], f"{again[-10:]} is not {whole[-10:]}"
    return {"last loss": whole[-1]}


@check("gpu")
def the_loops_times_agree_with_the_profilers(machine: Machine) -> Figures:
    """Forward and backward take, by the loop's events, at least what the kernels do in a trace."""
    shape = ("--layers", "6", "--width", "512", "--context", "512", "--batch-size", "16")
    flags = (*shape, "--eval-every", "0", "--save-every", "0", "--precision", "bf16")
    _train(machine, "profiled", *flags, "--steps", "20", "--log-every", "5", "--profile")
    trace = json.loads((machine.folder / "profiled" / "trace-rank0.json").read_text())
    kernels = [e for e in trace["traceEvents"] if e.get("cat") == "kernel"]
    assert kernels, "the trace has no kernel"
    steps = 3  # that are recorded
    busy_s = sum(e["dur"] for e in kernels) / 1e6 / steps
    line = [line for line in _lines(machine, "profiled") if "compute_s" in line][-1]
    compute_s = line["compute_s"][0]  # without what a device does first
    assert 0.3 < busy_s / compute_s < 1.5, f"kernels {busy_s:.4f} s, the loop says {compute_s:.4f}"
    return {"kernels_s": round(busy_s, 5), "compute_s": compute_s}


@check("NCCL", "two gpus")
def the_loop_learns_on_every_device(machine: Machine) -> Figures:
    """A rank per device, gradients over NCCL: the loss falls as with one."""
    return _falls(machine, "ddp", ranks=len(machine.devices))


@check("NCCL")
def the_plain_example_trains_over_nccl(machine: Machine) -> Figures:
    """train/examples/plain_ddp.py, as it stands, with a rank per device."""
    example = Path(__file__).parents[2] / "train" / "examples" / "plain_ddp.py"
    ended = machine.launch("--nproc", str(len(machine.devices)), str(example)).check()
    return {"last line": ended.out.strip().splitlines()[-1]}


@check("NCCL")
def two_ranks_on_one_device_are_refused_in_a_line(machine: Machine) -> Figures:
    """NCCL takes no two ranks of one device: its last words and what to type; status 2."""
    train = ("--", "--device", "cuda", "--steps", "1", "--out", "two")
    one = {"CUDA_VISIBLE_DEVICES": "0"}
    ended = machine.launch("--nproc", "2", "--oversubscribe", *train, **one).check(2)
    assert "NCCL does not connect rank" in ended.err, ended.err
    assert "Traceback" not in ended.err, ended.err
    return {"status": 2}
