"""Bindings take effect on real processes, within real masks and a real cpuset."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from spawnlaunch.base import machine
from spawnlaunch.binding import apply
from spawnlaunch.binding.apply import Binding
from tests.support.patience import PATIENCE_S

REPOSITORY = Path(__file__).resolve().parents[2]
HERE = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []

needs_two_cpus = pytest.mark.skipif(len(HERE) < 2, reason="needs two CPUs")

# Plans one rank on this machine and is bound; then says what a child sees after fork and exec.
SIT = """
import os, sys
from spawnlaunch import node
from spawnlaunch.cli import values
from spawnlaunch.binding import apply, plan
from spawnlaunch.base import cpuset
from spawnlaunch.node.visible import Visible
machine = node.read()
ranks, rank, mem = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
binding = plan.plan(machine, Visible((), "", ()), ranks).bindings[rank]
for line in (apply.pin(binding), apply.place_memory(binding._replace(mem_bind=mem))):
    if line:
        print("refused:", line)
sys.stdout.flush()
os.execv(sys.executable, [sys.executable, "-c", '''
import os, subprocess, sys, threading
def mask(): return ",".join(map(str, sorted(os.sched_getaffinity(0))))
masks = [mask()]
thread = threading.Thread(target=lambda: masks.append(mask()))
thread.start(); thread.join()
code = "import os; print(*sorted(os.sched_getaffinity(0)), sep=',')"
masks.append(subprocess.check_output([sys.executable, "-c", code], text=True).strip())
print(*masks)
from spawnlaunch.binding import apply
print(apply.memory_policy())
print(*{line.split()[1] for line in open("/proc/self/numa_maps")})
'''])
"""


def sit(
    *arguments: object, before: tuple[str, ...] = (), ranks: int = 1, rank: int = 0
) -> list[str]:
    """Lines that the program above prints, started through the command `before`."""
    mem = str(arguments[0]) if arguments else "preferred"
    done = subprocess.run(
        [*before, sys.executable, "-c", SIT, str(ranks), str(rank), mem],
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY,
        timeout=PATIENCE_S,
    )
    return done.stdout.splitlines()


@needs_two_cpus
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_its_threads_and_its_children_have_its_cpus(rank: int) -> None:
    masks = sit(ranks=len(HERE), rank=rank)[0].split()
    assert masks == [str(HERE[rank])] * 3


@needs_two_cpus
def test_a_mask_of_taskset_is_respected() -> None:
    for cpu in HERE[:2]:
        assert sit(before=("taskset", "-c", str(cpu)))[0].split() == [str(cpu)] * 3


@needs_two_cpus
def test_a_real_cpuset_is_respected_and_found(small_cpuset: Path) -> None:
    join = f'echo $$ > {small_cpuset}/tasks && exec "$@"'
    inside = ("sh", "-c", join, "sh")
    assert sit(before=inside)[0].split() == [str(HERE[1])] * 3
    found = subprocess.run(
        [
            *inside,
            sys.executable,
            "-c",
            "from spawnlaunch import node; print(node.read().cpus_cgroup)",
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY,
    )
    assert found.stdout.strip() == f"frozenset({{{HERE[1]}}})"


needs_numa = pytest.mark.skipif(
    apply.memory_policy() is None or not Path("/proc/self/numa_maps").exists(),
    reason="the kernel or the container does not let memory policies be asked for",
)


@needs_numa
@pytest.mark.parametrize(
    ("asked", "mode", "in_maps"),
    [("preferred", "preferred", "prefer:0"), ("bind", "bind", "bind:0")],
)
def test_the_memory_policy_survives_exec(asked: str, mode: str, in_maps: str) -> None:
    _, policy, maps = sit(asked)
    assert policy == f"MemoryPolicy(mode={mode!r}, nodes=frozenset({{0}}))"
    assert in_maps in maps.split()


@needs_numa
def test_no_memory_policy_is_left_alone() -> None:
    assert sit("none")[1] == "MemoryPolicy(mode='default', nodes=frozenset())"


# on(nodes, how): the binding of a rank whose memory is to come from these NUMA nodes.
ON_NODES = """
from spawnlaunch.binding import apply
def on(nodes, how):
    return apply.Binding(0, None, frozenset({0}), frozenset(nodes), 1, "local", "", how)
"""


def in_a_child(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=REPOSITORY
    )
    return done.stdout.strip()


@needs_numa
def test_several_nodes_are_preferred_together_where_the_kernel_can() -> None:
    code = (
        f"{ON_NODES}print(apply.place_memory(on({{0, 900}}, 'preferred'))); "
        "print(apply.memory_policy().mode, *apply.memory_policy().nodes)"
    )
    release = tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))
    mode = "preferred-many" if release >= (5, 15) else "preferred"  # set_mempolicy(2)
    assert in_a_child(code) == f"None\n{mode} 0"


def test_a_rank_that_is_not_pinned_is_left_alone() -> None:
    nowhere = Binding(0, None, frozenset(), frozenset({900}), 1, "unknown", "")
    assert (apply.pin(nowhere), apply.place_memory(nowhere)) == (None, None)


@needs_numa
def test_a_refusal_is_a_line_and_not_an_error() -> None:
    ways = "on({900}, 'preferred'), on({900}, 'bind')"
    code = f"{ON_NODES}print(*map(apply.place_memory, ({ways})), sep='\\n')"
    prefer, bind = in_a_child(code).splitlines()
    assert "(Invalid argument): pages go where" in prefer
    assert bind.endswith("(Invalid argument): memory is not bound")


def test_an_unknown_machine_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "uname", lambda: SimpleNamespace(machine="pdp11"))
    assert apply.memory_policy() is None
    binding = Binding(0, None, frozenset({0}), frozenset({0}), 1, "local", "")
    assert "Function not implemented" in (apply.place_memory(binding) or "")


@pytest.mark.parametrize(
    ("cpus", "said"),
    [
        ([1000], "CPUs 1000 were refused (Invalid argument): the mask stays as it was"),
        ([*HERE[:1], 1000], "of the CPUs {0},1000 the system gave {0}"),
    ],
)
def test_cpus_that_are_refused_or_left_out_are_named(cpus: list[int], said: str) -> None:
    code = (
        "from spawnlaunch.binding.apply import Binding, pin; "
        f"some = frozenset({cpus}); "
        "print(pin(Binding(0, None, some, frozenset(), 1, 'local', '')))"
    )
    assert in_a_child(code) == said.format(*HERE)


needs_filter = pytest.mark.skipif(
    os.uname().machine != "x86_64", reason="the numbers of refused calls are those of x86-64"
)

# As kernels before 5.15 answer: they know no policy that prefers several nodes.
OLD = """
from tests.support.refusing import refuser
refuser({("set_mempolicy", 5): 22})()
"""


@needs_numa
@needs_filter
@pytest.mark.parametrize(
    ("nodes", "policy", "said"),
    [
        ("{0, 900}", "local", "refused to prefer the memory of NUMA nodes 0,900 (Linux 5.15"),
        ("{0}", "preferred 0", "None"),
    ],
)
def test_an_old_kernel_is_asked_for_local_memory_and_not_for_that_of_the_first_node(
    nodes: str, policy: str, said: str
) -> None:
    code = (
        f"{OLD}{ON_NODES}print(apply.place_memory(on({nodes}, 'preferred'))); "
        "print(apply.memory_policy().mode, *apply.memory_policy().nodes)"
    )
    line, found = in_a_child(code).splitlines()
    assert found == policy
    assert said in line


@needs_numa
@needs_filter
def test_a_container_that_refuses_all_policies_is_told_once() -> None:
    refuse = "from tests.support.refusing import refuser\nrefuser({'set_mempolicy': 1})()\n"
    for nodes in ("{0}", "{0, 1}"):
        (line,) = in_a_child(
            f"{refuse}{ON_NODES}print(apply.place_memory(on({nodes}, 'preferred')))"
        ).splitlines()
        assert line == (
            "the memory policy was refused (Operation not permitted): pages go where they are "
            "first touched"
        )


# Sets a policy, and plans as a launcher that inherits it, on a machine of two nodes.
INHERIT = """
import sys
from spawnlaunch.cli import parsing as cli
from spawnlaunch.binding import apply, plan
from spawnlaunch.node.visible import visible
from spawnlaunch.world import identity
from tests.machines.small import TWO_NODES, small
from tests.machines.tree import node_of
if mode:
    assert apply._set(mode, nodes) == 0
node = node_of(small(4, TWO_NODES))
request = cli.parse([*flags, "--no-python", "true"], {}, sys.executable)
world = identity.World("local", 0, 2, 0, 2, 0, 1, "", 0, "")
told = plan.bind_ranks(
    request, node, visible(node, {}), identity.Resolution(world, {}, (), (), {})
)
print(*{binding.mem_bind for binding in told.bindings})
print(*(line for line in told.warnings if "memory policy" in line), sep="\\n")
"""
INTERLEAVE, LOCAL = "mode, nodes = 3, [0]", "mode, nodes = 4, []"
BIND, NONE = "mode, nodes = 2, [0]", "mode, nodes = 0, []"


@needs_numa
@pytest.mark.parametrize(
    ("inherited", "flags", "mem_bind", "said"),
    [
        (INTERLEAVE, [], "none", "the memory policy interleave 0 was inherited"),
        (BIND, [], "none", "the memory policy bind 0 was inherited"),
        (LOCAL, [], "none", "the memory policy local was inherited"),
        (INTERLEAVE, ["--mem-bind", "preferred"], "preferred", ""),
        (INTERLEAVE, ["--mem-bind=bind"], "bind", ""),
        (INTERLEAVE, ["--mem-bind=none"], "none", ""),
        (INTERLEAVE, ["--bind", "none"], "preferred", ""),  # which sets nothing
        (INTERLEAVE, ["--sysfs-root", "/tmp", "--explain"], "preferred", ""),
        (NONE, [], "preferred", ""),
    ],
)
def test_an_inherited_memory_policy_stays_unless_another_is_typed(
    inherited: str, flags: list[str], mem_bind: str, said: str
) -> None:
    lines = in_a_child(f"{inherited}\nflags = {flags}\n{INHERIT}").splitlines()
    assert lines[0] == mem_bind
    assert len(lines[1:]) == bool(said)
    assert all(line.startswith(said) for line in lines[1:])
    assert all(line.endswith("use --mem-bind preferred") for line in lines[1:])
