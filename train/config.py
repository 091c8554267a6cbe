"""What a run was asked to do: one frozen record whose fields are the flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from .flags import duration, flag, not_negative, one_of, path, positive, switch, whole, word


@dataclass(frozen=True)
class Config:
    """The field ``batch_size`` is the flag ``--batch-size``; a task adds flags in ``options``."""

    task: str = flag(
        "language",
        word,
        "TASK",
        "name, path/to/file.py:Class or package.module:Class (%(default)s)",
    )
    steps: int = flag(350, whole(1), "N", "optimizer steps (%(default)s)")
    epochs: int | None = flag(None, whole(1), "N", "passes over the samples, instead of --steps")
    batch_size: int = flag(
        8, whole(1), "N", "samples per forward pass of EACH worker (%(default)s)"
    )
    accumulate: int = flag(1, whole(1), "N", "forward passes per step (%(default)s)")
    global_batch: int | None = flag(
        None, whole(1), "N", "samples per step of ALL workers together, instead of --batch-size"
    )
    lr: float = flag(4e-3, positive, "RATE", "highest learning rate (%(default)s)")
    warmup: int = flag(50, whole(0), "N", "steps in which the learning rate rises (%(default)s)")
    weight_decay: float = flag(0.1, not_negative, "X", "of matrices (%(default)s)")
    clip: float = flag(1.0, not_negative, "X", "largest norm of a gradient, 0: any (%(default)s)")
    seed: int = flag(0, whole(0), "N", "decides initial weights and sample order (%(default)s)")

    device: str = flag(
        "auto", one_of("auto", "cpu", "cuda"), "NAME", "auto, cpu or cuda (%(default)s)"
    )
    precision: str = flag(
        "fp32", one_of("fp32", "bf16", "fp16"), "NAME", "fp32, bf16 or fp16 (%(default)s)"
    )
    tf32: bool = switch("let float32 matrix products use TF32")
    compile: bool = switch("compile the model with torch.compile")
    static_graph: bool = switch("promise that every step uses the same parameters")
    bucket_mb: int = flag(25, whole(1), "N", "MiB of gradients sent at once (%(default)s)")
    loader_workers: int | None = flag(
        None, whole(0, 1024), "N", "processes that read samples (by the CPUs of the worker)"
    )
    gc_every: int = flag(
        100, whole(0), "N", "steps between two garbage collections, 0: Python's way (%(default)s)"
    )

    log_every: int = flag(25, whole(1), "N", "steps between two lines of metrics (%(default)s)")
    eval_every: int = flag(
        175, whole(0), "N", "steps between two validations, 0: at the end only (%(default)s)"
    )
    eval_batch_size: int = flag(32, whole(1), "N", "samples per pass of validation (%(default)s)")
    save_every: int = flag(
        175, whole(0), "N", "steps between two checkpoints, 0: best and last only (%(default)s)"
    )
    keep: int = flag(2, whole(1), "N", "checkpoints kept besides the best (%(default)s)")

    out: str | None = flag(
        None, path, "DIR", "where the run is written (runs/<task>-<date>-<time>)"
    )
    overwrite: bool = switch("replace the run in --out")
    resume: str = flag(
        "never", path, "HOW", "auto: go on with --out, never, or a checkpoint's path (%(default)s)"
    )
    max_time: str | None = flag(None, duration, "TIME", "save and leave in time: 90m, 12h, 1:30:00")
    requeue: bool = switch("put the Slurm job back into its queue when it is preempted")

    tensorboard: bool = switch("write TensorBoard events too")
    wandb: str | None = flag(None, word, "PROJECT", "log to Weights & Biases, one run per rank")
    plot: bool = switch("draw loss and throughput as OUT/plot.png")
    profile: bool = switch("write a trace of a few steps as OUT/trace-rank<N>.json")
    peak_tflops: float | None = flag(
        None, positive, "X", "of one device at this precision, for its utilisation (known for some)"
    )

    options: Mapping[str, Any] = field(default_factory=dict)


FLAGS = tuple(one for one in fields(Config) if one.name != "options")


def to_toml(config: Config) -> str:
    """The configuration as a file that --config reads: the names of flags, and their values."""
    values = {one.name: getattr(config, one.name) for one in FLAGS} | dict(config.options)
    lines = [f"{name} = {_toml(value)}\n" for name, value in values.items() if value is not None]
    return "".join(lines)


def _toml(value: bool | int | float | str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    # A TOML basic string (toml.io, v1.0.0): these two and control characters are escaped.
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'
