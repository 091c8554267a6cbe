"""Trees of /sys and /proc with damaged files: a plan that keeps its rules, or one line.

The machines are built by tests/machines/tree.py. A tree is damaged, read, and mended again.
"""

import functools
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

from spawnlaunch import cpuset
from spawnlaunch import node as nodes
from spawnlaunch.binding.plan import plan
from spawnlaunch.node import Node
from spawnlaunch.node.visible import Visible, visible
from spawnlaunch.values import FIRST_PER_L3, NAMES, NONE, Policy, reserve
from tests.binding.test_generated import check, near
from tests.fuzz.engine import Subject, explained, once_in
from tests.fuzz.values import slip
from tests.machines.tree import AMD, INTEL, Gpu, Machine, build, cores, write
from tests.support.launching import REPORTER

_GROUPS = ("0-3,8-11", "4-7,12-15")
NVIDIA_NODE = Machine(
    "nvidia", "", cores(8, 2), {0: _GROUPS[0], 1: _GROUPS[1], 2: ""}, _GROUPS, ("0-15",),
    (Gpu(1, _GROUPS[1]), Gpu(0, _GROUPS[0]), Gpu(-1, "")),
)  # fmt: skip
AMD_NODE = NVIDIA_NODE._replace(
    name="amd", gpus=(Gpu(0, _GROUPS[0], None, AMD, 2), Gpu(1, _GROUPS[1], None, AMD)), offline="15"
)
INTEL_NODE = NVIDIA_NODE._replace(
    name="intel", numa={0: "0-15"}, gpus=(Gpu(0, "0-15", None, INTEL, 2),), packages=_GROUPS
)
BUILT = {machine.name: machine for machine in (NVIDIA_NODE, AMD_NODE, INTEL_NODE)}
STATUS = "Cpus_allowed_list:\t{}\nMems_allowed_list:\t{}"
KINDS = [
    *("missing", "empty", "cut", "slip", "slip", "number", "number", "list", "list", "binary"),
    *("huge", "directory", "loop", "fifo", "zero", "other", "unreadable", "deep"),
]
NUMBERS = ["-1", "0", "1", "7", "255", "1048575", "99999999999", "9" * 5000, "0x10de", "²", "x"]
LISTS = ["", "0", "0-15", "0-3", "15-0", "0-1048575", "99", "0-7,4-11", "0x", "ffff", "0-", "a"]


class Damage(NamedTuple):
    """What is done to a file."""

    file: str  # from the root of the tree
    kind: str
    text: str  # or the file that is taken instead


class Case(NamedTuple):
    """A damaged machine, and how its ranks are to be bound."""

    machine: str
    damages: list[Damage]
    allowed: str | None
    ranks: int
    policy: Policy
    devices: str | None  # CUDA_VISIBLE_DEVICES


def draw(random: Random) -> Case:
    machine = random.choice([*BUILT])
    damages = [damage(random, machine) for _ in range(random.choice([0, 1, 1, 2, 3, 8, 30]))]
    allowed = random.choice([None, None, "0-15", "0-7", "4,12", "3-5,11", "0", "900"])
    devices = random.choice([None, None, None, "0", "1,0", "", "7", "GPU-0", "-1", "0,0"])
    policy = Policy(random.choice(NAMES), smt=not once_in(random, 4))
    policy = policy._replace(threads=random.choice([None, None, None, 1, 3, 99]))
    if once_in(random, 4):
        reserved = reserve(random.choice([FIRST_PER_L3, "0", "0-3", "0-15"]))
        policy = policy._replace(reserve=reserved)
    return Case(machine, damages, allowed, random.randint(1, 20), policy, devices)


def damage(random: Random, machine: str) -> Damage:
    files = files_of(machine)
    file, kind = random.choice(files), random.choice(KINDS)
    text = {
        "slip": slip(random, (root_of(machine) / file).read_text(errors="replace")),
        "number": random.choice(NUMBERS),
        "list": random.choice(LISTS),
        "other": random.choice(files),
    }.get(kind, "")
    return Damage(file, kind, text)


@functools.cache
def root_of(machine: str) -> Path:
    """The tree of a machine, made when it is asked for first."""
    into = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    _made.append(into)
    build(into, BUILT[machine], 5)
    write(into / "proc/self/status", STATUS.format("0-15", "0-1"))
    return into


_made: list[Path] = []


def remove() -> None:
    """Take all trees away."""
    while _made:
        shutil.rmtree(_made.pop())
    root_of.cache_clear()


@functools.cache
def files_of(machine: str) -> list[str]:
    """What may be damaged: files, and directories that hold them."""
    root = root_of(machine)
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


@contextmanager
def damaged(case: Case) -> Iterator[Path]:
    """The root of the tree with its damages, which are mended in the end."""
    root = root_of(case.machine)
    kept = {each.file: (root / each.file).read_bytes() for each in case.damages}
    try:
        for each in case.damages:
            spoil(root, root / each.file, each)
        yield root
    finally:
        for file, content in kept.items():
            clear(root / file)
            (root / file).write_bytes(content)


def clear(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def spoil(root: Path, path: Path, how: Damage) -> None:
    content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
    clear(path)
    if how.kind == "directory":
        path.mkdir()
    elif how.kind == "fifo":
        os.mkfifo(path)
    elif how.kind in ("loop", "zero", "other"):
        path.symlink_to({"loop": path, "zero": "/dev/zero"}.get(how.kind, root / how.text))
    elif how.kind != "missing":
        new = {"empty": b"", "cut": content[: len(content) // 2], "binary": bytes(range(256))}
        new |= {"huge": b"1,3\n" * 100000, "deep": b"[" * 10000, "unreadable": content}
        path.write_bytes(new.get(how.kind, how.text.encode(errors="surrogateescape")))
        path.chmod(0 if how.kind == "unreadable" else 0o600)


def judge(case: Case) -> None:
    with damaged(case) as root:
        node = nodes.read(str(root), None if case.allowed is None else cpuset.parse(case.allowed))
    judge_node(node)
    environ = {} if case.devices is None else {"CUDA_VISIBLE_DEVICES": case.devices}
    seen = visible(node, environ)
    for devices in (seen, Visible((), "", ())):
        bindings = plan(node, devices, case.ranks, case.policy).bindings
        assert [binding.local_rank for binding in bindings] == list(range(case.ranks))
        for binding in bindings:
            assert binding.cpus <= node.cpus_allowed
            assert bool(binding.cpus) == (case.policy.name != NONE and bool(node.cpus_allowed))
            assert binding.threads >= 1
            assert set(binding.memory_nodes) <= node.memory_nodes
    listed = [device for device in seen.devices if device is not None]
    if listed == list(seen.devices) != [] and cores_are_whole(node, listed):
        check(node, tuple(listed), plan(node, seen, len(listed)))


def cores_are_whole(node: Node, devices: list[int]) -> bool:
    """Whether no core lies next to a device in part, as where files contradict each other."""
    allowed = [core & node.cpus_allowed for core in node.cores]
    claims = [near(node, device) for device in devices]
    return bool(node.cpus_allowed) and all(
        core <= claim or not core & claim for core in allowed for claim in claims
    )


def judge_node(node: Node) -> None:
    """What its readers rely on."""
    assert node.cpus_allowed <= node.cpus_online
    every = [cpu for core in node.cores for cpu in core]
    assert len(every) == len(set(every)), "a CPU is in two cores"
    assert node.cpus_online <= set(every), "a CPU is in no core"
    assert all(core for core in node.cores)
    for line in node.warnings:
        assert line.splitlines() == [line]
        assert len(line) < 10_000


def judge_real(case: Case) -> None:
    words = ["--nproc", str(case.ranks), "--oversubscribe", "--bind", case.policy.name]
    words += [] if case.allowed is None else ["--allowed-cpus", case.allowed]
    environ = {} if case.devices is None else {"CUDA_VISIBLE_DEVICES": case.devices}
    with damaged(case) as root, suppress(FileNotFoundError):
        explained([*words, f"--sysfs-root={root}", str(REPORTER)], environ)


TREES = Subject(draw, judge, judge_real)
