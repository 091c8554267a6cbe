"""Explain an unknown flag: another launcher's, a mistyped one, or the script's own.

Imported only where there is such a flag.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from difflib import get_close_matches

from spawnlaunch.cli import flags, slips
from spawnlaunch.cli.torchrun import names

_WORKERS = "type --nproc N, the number of workers on each machine"
_NODES = "type --nnodes N, and on each machine its --node-rank and the same --master-addr"
_HOSTS = (
    "workers are started on this machine only, and mpirun starts one process per rank on all; "
    f"type mpirun TYPED HOSTS {flags.HERE} SCRIPT, or on each host {flags.HERE} --nnodes N "
    "--node-rank N --master-addr HOST SCRIPT"
)

# The replacement for a flag of accelerate, deepspeed, mpirun or srun. Long names have two hyphens
# here, and users may write one; TYPED stands for the name as the user wrote it.
OF_OTHERS = {
    **dict.fromkeys(
        ("-n", "--np", "--ntasks", "--num-processes", "--num-gpus", "--gpus"), _WORKERS
    ),
    **dict.fromkeys(("-N", "--nodes", "--num-machines", "--num-nodes"), _NODES),
    "--machine-rank": "type --node-rank N",
    "--main-process-ip": "type --master-addr HOST",
    "--main-process-port": "type --master-port PORT",
    **dict.fromkeys(("--hostfile", "--host", "-H"), _HOSTS),
    "-x": f"workers inherit the environment of this command; type NAME=VALUE {flags.HERE}",
    "--gpu-ids": f"type CUDA_VISIBLE_DEVICES=0,1 {flags.HERE}",
    "--mixed-precision": f"type ACCELERATE_MIXED_PRECISION=bf16 {flags.HERE}",
    "--multi-gpu": "it means nothing here; leave it out",
}


def advice(word: str, rest: Sequence[str]) -> str:
    """Return the error for the flag `word`, which may contain its value, as --np=2 or -np2.

    `rest` are the words after it.
    """
    if slip := slips.of_flag(word):
        return slip
    typed = word.partition("=")[0]
    name = typed.replace("_", "-").rstrip("0123456789")
    if len(name) > 2 and not name.startswith("--"):
        name = f"-{name}"
    if name in OF_OTHERS:
        return f"unknown flag {word}: {OF_OTHERS[name].replace('TYPED', typed)}"
    if meant := names.beginning(name):
        return f"unknown flag {word}: it may be short for {' or '.join(meant)}; type the whole name"
    if near := _near(name):
        return f"unknown flag {word}; did you mean {near}?"
    if any(each.endswith(".py") or os.path.isfile(each) for each in rest):  # a script
        of_loop = "those of the training loop behind a --"
    else:
        of_loop = f"for the training loop type -- {shlex.join((word, *rest))}"
    of_others = f"those of a script go behind it, {of_loop}"
    return f"unknown flag {word}; {of_others}, and for ours type {flags.HERE} --help"


def _near(name: str) -> str:
    """The flag that was probably meant, or ""; a script's --model is not the --module here."""
    other = [each for flag in flags.FLAGS for each in flag.also]
    ours = [flag.name for flag in flags.FLAGS]
    near = get_close_matches(name, other, 1, 0.9) or get_close_matches(name, ours, 1, 0.75)
    return flags.SPELLINGS[near[0]].name if near else ""
