"""Trees of /sys and /proc with damaged files: a node, and a plan that keeps its rules."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from spawnlaunch import node as nodes
from spawnlaunch.base import cpuset
from spawnlaunch.binding.plan import plan
from spawnlaunch.cli.values import FIRST_PER_L3, NAMES, NONE, Policy, reserve
from spawnlaunch.node import Node
from spawnlaunch.node.visible import Visible, visible
from tests.binding.test_generated import check, near
from tests.machines.tree import AMD, IN_MEMORY, INTEL, Gpu, Machine, build, cores, write
from tests.support.answers import bounded
from tests.support.examples import examples, nightly
from tests.support.texts import slips

GROUPS = ("0-3,8-11", "4-7,12-15")
NVIDIA_NODE = Machine(
    "nvidia", "", cores(8, 2), {0: GROUPS[0], 1: GROUPS[1], 2: ""}, GROUPS, ("0-15",),
    (Gpu(1, GROUPS[1]), Gpu(0, GROUPS[0]), Gpu(-1, "")),
)  # fmt: skip
AMD_NODE = NVIDIA_NODE._replace(
    name="amd", gpus=(Gpu(0, GROUPS[0], None, AMD, 2), Gpu(1, GROUPS[1], None, AMD)), offline="15"
)
INTEL_NODE = NVIDIA_NODE._replace(
    name="intel", numa={0: "0-15"}, gpus=(Gpu(0, "0-15", None, INTEL, 2),), packages=GROUPS
)
MIXED_NODE = NVIDIA_NODE._replace(
    name="mixed", gpus=(*NVIDIA_NODE.gpus[:1], AMD_NODE.gpus[0], INTEL_NODE.gpus[0])
)
BUILT = {each.name: each for each in (NVIDIA_NODE, AMD_NODE, INTEL_NODE, MIXED_NODE)}
NUMBERS = ["-1", "0", "1", "7", "255", "1048575", "99999999999", "9" * 5000, "0x10de", "²", "x"]
LISTS = ["", "0", "0-15", "0-3", "15-0", "0-1048575", "99", "0-7,4-11", "0x", "ffff", "0-", "a"]
CONTENTS = [b"", bytes(range(256)), b"1,3\n" * 100000, b"[" * 10000, b"garbage", b"\xff" * 9]
KINDS = ["missing", "unreadable", "directory", "loop", "fifo", "zero"]


class Damage(NamedTuple):
    """What is done to a file."""

    file: str  # from the root of the tree
    kind: str  # one of KINDS, "content", or "other": another file is taken instead
    content: bytes | str


class Case(NamedTuple):
    """A damaged machine, and how its ranks are to be bound."""

    machine: str
    damages: list[Damage]
    allowed: str | None
    ranks: int
    policy: Policy
    devices: str | None  # CUDA_VISIBLE_DEVICES


@cache
def root_of(machine: str) -> Path:
    """The tree of a machine, made when it is asked for first."""
    root = Path(tempfile.mkdtemp(dir=IN_MEMORY))
    build(root, BUILT[machine], 5)
    write(root / "proc/self/status", "Cpus_allowed_list:\t0-15\nMems_allowed_list:\t0-1")
    return root


@pytest.fixture(scope="module", autouse=True)
def no_trees_left() -> Iterator[None]:
    yield
    for machine in BUILT:
        shutil.rmtree(root_of(machine))
    root_of.cache_clear()


@cache
def files_of(machine: str) -> dict[str, bytes]:
    """The files that may be damaged, and what stands in them."""
    root = root_of(machine)
    found = {path.relative_to(root): path for path in sorted(root.rglob("*")) if path.is_file()}
    return {str(name): path.read_bytes() for name, path in found.items()}


@st.composite
def damages(draw: DrawFn, machine: str) -> Damage:
    """Damage to a file of the machine."""
    files = files_of(machine)
    file = draw(st.sampled_from(sorted(files)))
    before = files[file]
    content: SearchStrategy[bytes | str] = st.one_of(
        *map(st.sampled_from, (CONTENTS, NUMBERS, LISTS)),
        slips(st.just(before.decode(errors="replace"))),
        st.just(before[: len(before) // 2]),
    )
    kind = draw(st.sampled_from([*KINDS, "other", *["content"] * len(KINDS)]))
    other = st.sampled_from(sorted(files))
    return Damage(file, kind, draw(other if kind == "other" else content))


@st.composite
def cases(draw: DrawFn) -> Case:
    """Any damages, policy, mask and list of devices."""
    machine = draw(st.sampled_from(sorted(BUILT)))
    allowed = draw(st.sampled_from([None, None, "0-15", "0-7", "4,12", "3-5,11", "0", "900"]))
    devices = draw(st.sampled_from([None, None, "0", "1,0", "", "7", "GPU-0", "-1", "0,0"]))
    kept = draw(st.sampled_from(["", "", FIRST_PER_L3, "0", "0-3", "0-15"]))
    policy = Policy(
        draw(st.sampled_from(NAMES)),
        smt=draw(st.booleans()),
        threads=draw(st.sampled_from([None, None, 1, 3, 99])),
        reserve=reserve(kept) if kept else cpuset.EMPTY,
    )
    damaged = draw(st.lists(damages(machine), max_size=20))
    return Case(machine, damaged, allowed, draw(st.integers(1, 20)), policy, devices)


@contextmanager
def damaged(machine: str, damages: list[Damage]) -> Iterator[Path]:
    """The root of the tree with its damages, which are mended in the end."""
    root = root_of(machine)
    try:
        for each in damages:
            spoil(root, root / each.file, each)
        yield root
    finally:
        for each in damages:
            clear(root / each.file)
            (root / each.file).write_bytes(files_of(machine)[each.file])


def clear(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


def spoil(root: Path, path: Path, how: Damage) -> None:
    clear(path)
    if how.kind == "directory":
        path.mkdir()
    elif how.kind == "fifo":
        os.mkfifo(path)
    elif how.kind in ("loop", "zero", "other"):
        path.symlink_to({"loop": path, "zero": "/dev/zero"}.get(how.kind, root / str(how.content)))
    elif how.kind != "missing":
        text = how.content
        path.write_bytes(text.encode(errors="surrogateescape") if isinstance(text, str) else text)
        path.chmod(0 if how.kind == "unreadable" else 0o600)


def is_planned(case: Case) -> None:
    allowed = None if case.allowed is None else cpuset.parse(case.allowed)
    with damaged(case.machine, case.damages) as root, bounded():
        node = nodes.read(str(root), allowed)
    judge_node(node)
    seen = visible(node, {} if case.devices is None else {"CUDA_VISIBLE_DEVICES": case.devices})
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


test_any_damaged_tree_is_planned_by_the_rules = examples(40, 200)(given(cases())(is_planned))
test_thousands_of_damaged_trees = nightly(given(cases())(is_planned))


@pytest.mark.parametrize("content", [None, b"", "garbage", "-1", "0-", b"\xff" * 9, "9" * 99])
def test_any_file_may_be_missing_or_wrong(content: bytes | str | None) -> None:
    for file in files_of("mixed"):
        damage = Damage(file, "missing" if content is None else "content", content or b"")
        with damaged("mixed", [damage]) as root:
            node = nodes.read(str(root))
        judge_node(node)
        result = plan(node, visible(node, {}), 3)
        assert all(binding.cpus <= node.cpus_allowed for binding in result.bindings), file
        assert all(binding.cpus for binding in result.bindings), file
