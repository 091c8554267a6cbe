"""What a run was asked to do: one frozen record whose fields are the flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from .flags import (
    betas,
    duration,
    flag,
    goal,
    not_negative,
    one_of,
    path,
    positive,
    splits,
    switch,
    whole,
    word,
)


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
    schedule: str = flag(
        "cosine",
        one_of("cosine", "linear", "constant"),
        "NAME",
        "how the learning rate falls: cosine, linear or constant (%(default)s)",
    )
    final_lr: float | None = flag(
        None, not_negative, "RATE", "learning rate of the last step (a twentieth of --lr)"
    )
    warmup: int | None = flag(
        None, whole(0), "N", "steps in which the learning rate rises (50, or a seventh of all)"
    )
    betas: str = flag("0.9,0.95", betas, "X,Y", "of AdamW (%(default)s)")
    weight_decay: float = flag(0.1, not_negative, "X", "of AdamW, for matrices (%(default)s)")
    clip: float = flag(1.0, not_negative, "X", "largest norm of a gradient, 0: any (%(default)s)")
    skip_nonfinite: int = flag(
        0,
        whole(0),
        "N",
        "steps in a row to skip when loss or gradient are not finite (%(default)s)",
    )
    seed: int = flag(0, whole(0), "N", "decides initial weights and sample order (%(default)s)")

    device: str = flag(
        "auto", one_of("auto", "cpu", "cuda"), "NAME", "auto, cpu or cuda (%(default)s)"
    )
    precision: str = flag(
        "fp32", one_of("fp32", "bf16", "fp16"), "NAME", "fp32, bf16 or fp16 (%(default)s)"
    )
    tf32: bool = switch("let float32 matrix products use TF32")
    compile: bool = switch("compile the model with torch.compile")
    checkpoint_activations: bool = switch("compute each block again in the backward pass")
    static_graph: bool = switch("promise that every step uses the same parameters")
    find_unused: bool = switch("allow for parameters that some steps or ranks do not use")
    sync_bn: bool = switch("let BatchNorm count the samples of all ranks; on GPUs only")
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
    eval_at_start: bool = switch("validate before the first step too")
    eval_only: bool = switch("train nothing: evaluate the weights of --resume or --init")
    eval_splits: str = flag(
        "validation", splits, "A,B", "what is evaluated at the end, or by --eval-only (%(default)s)"
    )
    save_every: int = flag(
        175, whole(0), "N", "steps between two checkpoints, 0: best and last only (%(default)s)"
    )
    best: str = flag(
        "loss", goal, "METRIC", "loss, or METRIC:max or :min of the task's report (%(default)s)"
    )
    patience: int | None = flag(
        None, whole(1), "N", "end after so many validations that were not the best so far"
    )
    keep: int = flag(2, whole(1), "N", "checkpoints kept besides the best (%(default)s)")

    out: str | None = flag(
        None, path, "DIR", "where the run is written (runs/<task>-<date>-<time>)"
    )
    overwrite: bool = switch("replace the run in --out")
    resume: str = flag(
        "never", path, "HOW", "auto: go on with --out, never, or a checkpoint's path (%(default)s)"
    )
    init: str | None = flag(None, path, "PATH", "begin with these weights, of a file or a run")
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
    lines = [f"{name} = {toml(value)}\n" for name, value in values.items() if value is not None]
    return "".join(lines)


def toml(value: bool | int | float | str) -> str:
    """A value as TOML has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    # A TOML basic string (toml.io, v1.0.0): these two and control characters are escaped.
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'
