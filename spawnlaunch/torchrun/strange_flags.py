"""What to type where a flag is none of ours: another launcher's, a slip, or the script's own.

Imported where there is such a flag, and nowhere else.
"""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from itertools import chain
from shlex import join, quote

from spawnlaunch import flags, records
from spawnlaunch.torchrun import names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# What a flag of others is called here; all of them take a value. Long names have two hyphens in
# these tables, and may be typed with one.
OF_OTHERS = {
    **dict.fromkeys(("-n", "--np", "--ppn", "--ntasks", "--ntasks-per-node"), "--nproc"),
    **dict.fromkeys(("--num-processes", "--num-gpus"), "--nproc"),  # accelerate, deepspeed
    **dict.fromkeys(("--gpus", "--gpus-per-node"), "--nproc"),  # srun
    **dict.fromkeys(("-N", "--nodes", "--num-machines", "--num-nodes"), "--nnodes"),
    "--machine-rank": "--node-rank",
    "--main-process-ip": "--master-addr",
    "--main-process-port": "--master-port",
}
TOTALS = ("-n", "--np", "--ntasks", "--num-processes", "--gpus")  # of all nodes together
# Those that name hosts, on which we start nothing; with a value, too.
HOSTS = ("--hostfile", "--machinefile", "--host", "--hosts", "-H")
FOR_MPIRUN = ("-n", "--np", "--ppn", "-N", "-x", "--genv", *HOSTS)  # kept where hosts are named
SIZES = ("--nproc", "--nnodes", "--node-rank", "--master-addr")  # which mpirun knows instead
# Those that set environment variables, and how many values follow: mpirun's, Hydra's, accelerate's.
ENVIRON = {"-x": 1, "--genv": 2, "--gpu-ids": 1}
# Those that ask for what is so anyway, or cannot be had, and whether a value follows.
NEEDLESS = {
    **dict.fromkeys(("--multi-gpu", "--allow-run-as-root"), False),
    **dict.fromkeys(("--no-local-rank", "--report-bindings"), False),
    **dict.fromkeys(("--bind-to", "--map-by", "--rank-by", "--cpu-bind"), True),
    **dict.fromkeys(("--mixed-precision", "--include", "--exclude"), True),
    **dict.fromkeys(("--event-log-dir", "--config-file"), True),
}
KNOWN = {*OF_OTHERS, *HOSTS, *ENVIRON, *NEEDLESS}


class Sorted(records.NamedTuple):
    """The words of a command line, in the order in which they can be typed."""

    ours: list[list[str]]  # our flags, and what others' are called here, each with its value
    theirs: list[str]  # what is nobody's that we know, so the script's
    command: list[str]  # the script and its words; after "--": with it
    mpirun: list[list[str]]  # what mpirun would be told, if hosts are named
    environ: list[str]  # NAME=VALUE, for a shell

    @property
    def names_hosts(self) -> bool:
        return any(typed in HOSTS or f"-{typed}" in HOSTS for typed, *_ in self.mpirun)


def advice(word: str, argv: Sequence[str]) -> str:
    """The error for the flag `word` of `argv`."""
    name = _split(word)[0]
    if name not in KNOWN and (meant := names.beginning(name)):
        return f"unknown flag {word}: it may be short for {' or '.join(meant)}; type the whole name"
    near = [] if name in KNOWN else _near(name)
    called = {**OF_OTHERS, **({name: near[0]} if near else {})}
    found = _sort(argv, called)
    line = f"type {_line(found)}"
    if near:
        return f"unknown flag {word}; did you mean {near[0]}? {line}"
    if found.names_hosts and name in FOR_MPIRUN:
        return (
            f"unknown flag {word}: workers are started on this machine only, and mpirun starts "
            f"one process per rank on all; {line}, or on each host {flags.HERE} --nnodes N "
            f"--node-rank N --master-addr HOST {join(found.command)}"
        )
    if name in OF_OTHERS:
        return f"unknown flag {word}, which is {OF_OTHERS[name]} here; {line}"
    if name in ENVIRON:
        return f"unknown flag {word}: workers inherit the environment of this command; {line}"
    if name in NEEDLESS:
        return f"unknown flag {word}, which means nothing here; leave it out: {line}"
    if found.command[:1] not in ([], ["--"]):
        return f"unknown flag {word}; flags of {found.command[0]} go behind it: {line}"
    if found.command:
        return f"unknown flag {word}; those of the bundled training loop go after the --: {line}"
    return (
        f"unknown flag {word}; those of a script go behind it, those of the bundled training loop "
        f"behind a --, and for ours type {flags.HERE} --help"
    )


def _near(name: str) -> list[str]:
    """The flag of ours that was meant, if any; the script's --model is not our --module."""
    other = [each for flag in flags.FLAGS for each in flag.also]
    ours = [flag.name for flag in flags.FLAGS]
    near = get_close_matches(name, other, n=1, cutoff=0.9)
    return [flags.SPELLINGS[each].name for each in near] or get_close_matches(name, ours, 1, 0.75)


def _split(word: str) -> tuple[str, str, str]:
    """A flag's name as the tables have it, what is between it and its value, and the value.

    >>> _split("-np2")
    ('--np', ' ', '2')
    """
    if glued := re.fullmatch("(-n|-np|-N)([0-9]+)", word):
        name, between, value = glued[1], " ", glued[2]
    else:
        name, between, value = word.partition("=")
        if name.replace("_", "-") not in KNOWN:
            name, between, value = names.split(word)
    flag = flags.spelt(name)
    name = flag.name if flag else name.replace("_", "-")
    is_long = len(name) > 2 and not name.startswith("--")
    return (f"-{name}" if is_long else name), between, value


def _sort(argv: Sequence[str], called: Mapping[str, str]) -> Sorted:
    found = Sorted([], [], [], [], [])
    totals: list[list[str]] = []
    words = iter(argv)
    for word in words:
        if word == "--" or _begins_the_command(word, found):
            found.command.extend([word, *words])
            break
        name, between, value = _split(word)
        ours = called.get(name, name)
        flag = names.flag(ours)
        other = name in HOSTS or ENVIRON.get(name) or NEEDLESS.get(name, False)
        takes = other if flag is None else flag.alone is None
        values = [value] if between else [next(words, "1") for _ in range(takes)]  # 1: forgotten
        if name in FOR_MPIRUN:
            found.mpirun.append([word.partition("=")[0].rstrip("0123456789"), *values])
        if flag is not None:
            found.ours.append([f"{ours}={value}"] if between == "=" else [ours, *values])
            totals += found.ours[-1:] if name in TOTALS else []
        elif name in ENVIRON:
            found.environ.extend(_exported(name, values))
        elif name not in KNOWN:
            found.theirs.append(word)
    for total in totals:
        _divide(total, found.ours)
    return found


def _exported(name: str, values: Sequence[str]) -> Iterator[str]:
    """What a flag exports, as a shell is told; `-x NAME` names what is exported already."""
    exported = "=".join(values)
    if name == "--gpu-ids" and exported != "all":
        exported = f"CUDA_VISIBLE_DEVICES={exported}"
    variable, equals, value = exported.partition("=")
    if equals and re.fullmatch("[A-Za-z_][A-Za-z_0-9]*", variable):
        yield f"{variable}={quote(value)}"


def _divide(total: list[str], ours: Sequence[Sequence[str]]) -> None:
    """Turn the workers of all nodes, `--nproc 4`, into those of one, where that can be done."""
    given = dict("=".join(words).partition("=")[::2] for words in ours)
    count, nodes = "=".join(total).partition("=")[2], given.get("--nnodes", "")
    if all(re.fullmatch("0{0,8}[1-9][0-9]{0,8}", each) for each in (count, nodes)):
        share, rest = divmod(int(count), int(nodes))
        if not rest:
            total[-1] = total[-1].removesuffix(count) + str(share)


def _begins_the_command(word: str, found: Sorted) -> bool:
    """Whether this is the script, and not what follows a flag of the script's as its value."""
    asked_for = found.ours[-1:] in ([["-m"]], [["--no-python"]])
    is_script = word.endswith(".py") or os.path.isfile(word)  # perhaps on another machine
    return not word.startswith("-") and (not found.theirs or asked_for or is_script)


def _line(found: Sorted) -> str:
    """The whole command line, as it should have been typed."""
    command = found.command
    if found.theirs and command and command[0] != "--":
        command = [command[0], *found.theirs, *command[1:]]
    elif found.theirs:
        command = ["--", *found.theirs, *command[1:]]
    sizes = SIZES if found.names_hosts else ()
    alone = [flag for flag in found.ours if flag[0].partition("=")[0] not in sizes]
    told = ["mpirun", join(chain.from_iterable(found.mpirun))]
    before = told if found.names_hosts else found.environ
    return " ".join(
        filter(None, [*before, flags.HERE, join([*chain.from_iterable(alone), *command])])
    )
